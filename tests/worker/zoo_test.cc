// Networks of image classification other than mlp, cnn and resnet18. worker_twin_zoo_test checks that they compute what
// their references compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::zoo_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

ModelSpec TinyImagesFor(ModelKind kind) {
  ModelSpec spec;
  spec.kind = kind;
  spec.classes = 3;
  spec.channels = 3;
  spec.height = spec.width = 16;
  spec.patch_size = 8;
  if (kind == ModelKind::kTextureCnn2) spec.hidden = {8};
  return spec;
}

class ZooModel : public ::testing::TestWithParam<ModelKind> {
 protected:
  const ModelSpec spec_ = TinyImagesFor(GetParam());
  const images::Batch batch_ = TinyBatch(spec_, 8);
};

INSTANTIATE_TEST_SUITE_P(, ZooModel,
                         ::testing::Values(ModelKind::kResnet34, ModelKind::kResnet50, ModelKind::kEfficientnetB0,
                                           ModelKind::kVitTiny, ModelKind::kTextureCnn2),
                         [](const ::testing::TestParamInfo<ModelKind>& info) { return KindName(info.param); });

double LossOf(Model& model, const images::Batch& batch) {
  const absl::StatusOr<StepResult> result = model.Step(ViewOf(batch));
  EXPECT_TRUE(result.ok()) << result.status();
  return result->loss;
}

// The gradient of what is trained, and its length.
struct Slope {
  std::vector<float> gradient;
  double norm = 0;
};

Slope SlopeOf(Model& model, const images::Batch& batch) {
  LossOf(model, batch);
  Slope slope{.gradient = Copy(model.push().first(model.trained_elements()))};
  for (const float value : slope.gradient) slope.norm += std::pow(value, 2);
  slope.norm = std::sqrt(slope.norm);
  return slope;
}

// Moves the weights along the gradient, so far that a loss without curvature would change by `change`.
void Move(Model& model, const Slope& slope, double change) {
  const auto factor = static_cast<float>(change / std::pow(slope.norm, 2));
  for (size_t i = 0; i < slope.gradient.size(); ++i) model.parameters()[i] += factor * slope.gradient[i];
}

// Along the gradient itself, in which rounding counts least: gradients are long here, and a shorter step is lost in the
// weights' last bits.
TEST_P(ZooModel, PushedGradientIsTheSlopeOfTheLoss) {
  const auto model = MakeModel(spec_);
  const Slope slope = SlopeOf(*model, batch_);
  ASSERT_GT(slope.norm, 0.01);
  const double change = 8e-3;
  const std::vector<float> weights = Copy(model->parameters());
  Move(*model, slope, change);
  const double above = LossOf(*model, batch_);
  std::copy(weights.begin(), weights.end(), model->parameters().begin());
  Move(*model, slope, -change);
  EXPECT_NEAR((above - LossOf(*model, batch_)) / (2 * change), 1, 0.25);
}

TEST_P(ZooModel, EveryTensorHasAGradientAndGradientsBecomeReadyFromTheLast) {
  const auto model = MakeModel(spec_);
  std::fill(model->push().begin(), model->push().end(), 99.0f);
  uint64_t last = model->elements();
  const auto result = model->Step(ViewOf(batch_), [&](uint64_t from) {
    EXPECT_LT(from, last + 1);
    last = from;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(last, 0u);
  for (const TensorInfo& tensor : model->tensors()) {
    const auto pushed = model->push().subspan(tensor.offset, tensor.elements());
    EXPECT_TRUE(std::all_of(pushed.begin(), pushed.end(), [](float v) { return std::isfinite(v) && v != 99.0f; }))
        << tensor.name;
    EXPECT_TRUE(std::any_of(pushed.begin(), pushed.end(), [](float v) { return v != 0; })) << tensor.name;
  }
}

TEST_P(ZooModel, StepsDescendAndReadAndWriteWhereTheyAreTold) {
  const auto model = MakeModel(spec_), other = MakeModel(spec_);
  model->UseParameters(other->parameters());
  model->UsePush(other->push());
  const double before = LossOf(*other, batch_);
  const Slope slope = SlopeOf(*model, batch_);
  EXPECT_EQ(slope.gradient, Copy(other->push().first(model->trained_elements())));
  Move(*other, slope, -2e-3);
  EXPECT_LT(LossOf(*model, batch_), before);
}

TEST_P(ZooModel, EvaluationLeavesNothingOutAndChangesNothing) {
  ModelSpec dropping = spec_;
  if (GetParam() != ModelKind::kResnet34 && GetParam() != ModelKind::kResnet50) dropping.dropout = 0.5;
  const auto plain = MakeModel(spec_), model = MakeModel(dropping);
  EXPECT_EQ(Copy(plain->parameters()), Copy(model->parameters()));
  const std::vector<float> parameters = Copy(model->parameters());
  std::vector<int64_t> predictions(8), expected(8);
  const auto found = model->Evaluate(ViewOf(batch_), absl::MakeSpan(predictions));
  const auto wanted = plain->Evaluate(ViewOf(batch_), absl::MakeSpan(expected));
  ASSERT_TRUE(found.ok() && wanted.ok());
  EXPECT_EQ(found->loss, wanted->loss);
  EXPECT_EQ(predictions, expected);
  EXPECT_EQ(Copy(model->parameters()), parameters);
}

ModelSpec Dropping(ModelKind kind, double dropout, double stochastic_depth) {
  ModelSpec spec = TinyImagesFor(kind);
  spec.dropout = dropout;
  spec.stochastic_depth = stochastic_depth;
  return spec;
}

// What is left out follows from the seed and from which images a batch has, and not from what was drawn before.
TEST(Noise, FollowsFromTheSeedAndTheBatch) {
  for (const ModelSpec& spec :
       {Dropping(ModelKind::kVitTiny, 0, 0.5), Dropping(ModelKind::kVitTiny, 0.5, 0),
        Dropping(ModelKind::kTextureCnn2, 0.5, 0), Dropping(ModelKind::kEfficientnetB0, 0, 0.9)}) {
    images::Batch batch = TinyBatch(spec, 8), other = batch;
    batch.noise = 5;
    other.noise = 6;
    const auto model = MakeModel(spec, 3), again = MakeModel(spec, 3), elsewhere = MakeModel(spec, 4);
    elsewhere->UseParameters(again->parameters());
    const double first = LossOf(*model, batch);
    EXPECT_NE(LossOf(*model, other), first) << KindName(spec.kind);
    EXPECT_EQ(LossOf(*model, batch), first) << KindName(spec.kind);
    EXPECT_EQ(LossOf(*again, batch), first) << KindName(spec.kind);
    EXPECT_NE(LossOf(*elsewhere, batch), first) << KindName(spec.kind);
  }
}

// The last block's part is left out of nearly all images, and then has no gradient; the first block's never is.
TEST(Noise, StochasticDepthLeavesWholeBranchesOut) {
  const ModelSpec spec = Dropping(ModelKind::kVitTiny, 0, 0.99);
  const auto model = MakeModel(spec);
  const auto is_left_out = [&](const std::string& block) {
    const auto gradient = Find(*model, model->push(), "blocks." + block + ".mlp.fc2.bias");
    return std::all_of(gradient.begin(), gradient.end(), [](float value) { return value == 0; });
  };
  images::Batch batch = TinyBatch(spec, 1);
  int last = 0;
  for (batch.noise = 0; batch.noise < 8; ++batch.noise) {
    LossOf(*model, batch);
    last += is_left_out("11") ? 1 : 0;
    EXPECT_FALSE(is_left_out("0"));
  }
  EXPECT_GE(last, 6);
}

// Each of the kept counts for those that are not: the mean stays.
TEST(Noise, DropoutKeepsTheMean) {
  ModelSpec spec = Dropping(ModelKind::kTextureCnn2, 0.5, 0);
  spec.hidden = {4096};
  const auto model = MakeModel(spec);
  // A last layer that sums: its first output is the sum of what dropout left.
  for (float& weight : Find(*model, model->parameters(), "fc1.weight")) weight = 0;
  for (float& bias : Find(*model, model->parameters(), "fc1.bias")) bias = 1;
  for (float& weight : Find(*model, model->parameters(), "fc2.weight")) weight = 0;
  const auto weights = Find(*model, model->parameters(), "fc2.weight");
  for (size_t i = 0; i < 4096; ++i) weights[i] = 1.0f / 4096;
  for (float& bias : Find(*model, model->parameters(), "fc2.bias")) bias = 0;
  images::Batch batch = TinyBatch(spec, 1);
  batch.labels = {0};
  // With logits (1, 0, 0) the loss is log(1 + 2 / e).
  EXPECT_NEAR(LossOf(*model, batch), std::log(1 + 2 / std::exp(1.0)), 0.05);
}

TEST(TrainingLoss, PartsOfABatchAddUpAlsoWithWeights) {
  ModelSpec spec = TinyMlp();
  spec.class_weights = {0.5, 4, 1};
  spec.label_smoothing = 0.1;
  const auto model = MakeModel(spec);
  const images::Batch batch = TinyBatch(spec, 6);
  const double whole = LossOf(*model, batch);
  const std::vector<float> gradient = Copy(model->push());
  const size_t pixels = batch.images.size() / 6;
  double sum = 0;
  std::vector<float> added(gradient.size());
  for (size_t i = 0; i < 6; ++i) {
    const auto part = model->Step({.images = absl::MakeConstSpan(batch.images).subspan(i * pixels, pixels),
                                   .labels = absl::MakeConstSpan(batch.labels).subspan(i, 1)});
    ASSERT_TRUE(part.ok());
    sum += part->loss / 6;
    for (size_t k = 0; k < added.size(); ++k) added[k] += model->push()[k] / 6;
  }
  EXPECT_NEAR(whole, sum, 1e-5);
  EXPECT_THAT(added, ::testing::Pointwise(::testing::FloatNear(1e-5f), gradient));
}

// The loss is linear in its targets, also with weights and smoothing.
TEST(TrainingLoss, OfMixedImagesIsThatOfBothLabelsInTheirShares) {
  for (const bool plain : {true, false}) {
    ModelSpec spec = TinyMlp();
    if (!plain) spec.class_weights = {0.5, 4, 1};
    if (!plain) spec.label_smoothing = 0.1;
    const auto model = MakeModel(spec);
    images::Batch batch = TinyBatch(spec, 6), other = batch;
    std::rotate(other.labels.begin(), other.labels.begin() + 1, other.labels.end());
    const double own_loss = LossOf(*model, batch);
    std::vector<float> gradient = Copy(model->push());
    const double other_loss = LossOf(*model, other);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 0.7f * gradient[i] + 0.3f * model->push()[i];
    batch.share = 0.7f;
    batch.other_labels = other.labels;
    EXPECT_NEAR(LossOf(*model, batch), 0.7 * own_loss + 0.3 * other_loss, 1e-5);
    EXPECT_THAT(Copy(model->push()), ::testing::Pointwise(::testing::FloatNear(1e-5f), gradient));
    batch.other_labels[2] = 3;
    EXPECT_THAT(std::string(model->Step(ViewOf(batch)).status().message()),
                ::testing::HasSubstr("label 3 is not below the model's 3 classes"));
    batch.other_labels.pop_back();
    EXPECT_EQ(model->Step(ViewOf(batch)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TrainingLoss, EvaluationIsPlainCrossEntropy) {
  ModelSpec spec = TinyMlp(), weighted = spec;
  weighted.class_weights = {0.5, 4, 1};
  weighted.label_smoothing = 0.1;
  const auto plain = MakeModel(spec), model = MakeModel(weighted);
  const images::Batch batch = TinyBatch(spec, 6);
  EXPECT_NE(LossOf(*plain, batch), LossOf(*model, batch));
  std::vector<int64_t> predictions(6);
  EXPECT_EQ(plain->Evaluate(ViewOf(batch), absl::MakeSpan(predictions))->loss,
            model->Evaluate(ViewOf(batch), absl::MakeSpan(predictions))->loss);
}

TEST(TrainingLoss, AClassOfWeightZeroTeachesNothing) {
  ModelSpec spec = TinyMlp();
  spec.class_weights = {0, 1, 1};
  const auto model = MakeModel(spec);
  images::Batch batch = TinyBatch(spec, 4);
  std::fill(batch.labels.begin(), batch.labels.end(), 0);
  EXPECT_EQ(LossOf(*model, batch), 0);
  EXPECT_THAT(Copy(model->push()), Each(0.0f));
}

TEST(Initialisation, DrawsWeightsOfLayersOnly) {
  ModelSpec spec = TinyImagesFor(ModelKind::kVitTiny);
  const auto reference = MakeModel(spec);
  spec.init = {.kind = Initialisation::Kind::kTruncatedNormal, .deviation = 0.5};
  const auto model = MakeModel(spec), again = MakeModel(spec);
  EXPECT_EQ(Copy(model->parameters()), Copy(again->parameters()));
  for (const char* kept : {"cls_token", "pos_embed", "norm.weight", "blocks.0.norm1.bias"}) {
    EXPECT_EQ(Copy(Find(*model, model->parameters(), kept)), Copy(Find(*reference, reference->parameters(), kept)));
  }
  EXPECT_THAT(Copy(Find(*model, model->parameters(), "patch_embed.proj.bias")), Each(0.0f));
  const auto weights = Find(*model, model->parameters(), "blocks.3.mlp.fc1.weight");
  double square = 0;
  for (const float weight : weights) {
    ASSERT_LE(std::abs(weight), 1.0f);
    square += std::pow(weight, 2);
  }
  // Cut at two deviations, what is left has 0.88 of the deviation.
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(weights.size())), 0.88 * 0.5, 0.01);
}

TEST(TrainingLoss, WeightsForOtherClassesAreRefused) {
  ModelSpec spec = TinyMlp();
  spec.class_weights = {1, 2};
  const absl::Status status = Model::Create(spec, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 class weights for 3 classes"));
}

}  // namespace
}  // namespace slackline::worker::zoo_test

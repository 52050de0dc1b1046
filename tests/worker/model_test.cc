#include "worker/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::model_test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class EveryModel : public ::testing::TestWithParam<ModelSpec> {};

std::string NameOf(const ModelSpec& spec) {
  const std::string kind = spec.kind == ModelKind::kMlp ? "Mlp" : spec.kind == ModelKind::kCnn ? "Cnn" : "Resnet18";
  return kind + (spec.batch_norm ? "BatchNorm" : "");
}

INSTANTIATE_TEST_SUITE_P(, EveryModel,
                         ::testing::Values(TinyMlp(), TinyCnn(false), TinyCnn(true), TinyImagesForResnet()),
                         [](const ::testing::TestParamInfo<ModelSpec>& info) { return NameOf(info.param); });

double LossAt(Model& model, const images::Batch& batch) {
  absl::StatusOr<StepResult> result = model.Step(View(batch));
  EXPECT_TRUE(result.ok()) << result.status();
  return result->loss;
}

TEST_P(EveryModel, SameSeedGivesTheSameWeights) {
  const auto a = MakeModel(GetParam(), 3), b = MakeModel(GetParam(), 3), c = MakeModel(GetParam(), 4);
  EXPECT_EQ(Copy(a->parameters()), Copy(b->parameters()));
  EXPECT_NE(Copy(a->parameters()), Copy(c->parameters()));
  EXPECT_EQ(a->parameters().size(), a->elements());
  EXPECT_EQ(a->push().size(), a->elements());
}

TEST_P(EveryModel, ParametersAreTheNetworksOwn) {
  const auto model = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 8);
  const auto trained = model->parameters().subspan(0, model->trained_elements());
  std::fill(trained.begin(), trained.end(), 0.0f);
  EXPECT_NEAR(LossAt(*model, batch), std::log(3), 1e-6);

  trained[trained.size() - 1] = 10;  // the bias of the last class
  std::vector<int64_t> predictions(8, -1);
  ASSERT_TRUE(model->Evaluate(View(batch), absl::MakeSpan(predictions)).ok());
  EXPECT_THAT(predictions, Each(2));
}

bool IsLarge(const Model& model) { return model.elements() > 10'000; }

// A direction of length 1 in the trained parameters, which moves those from `offset` on.
struct Direction {
  size_t offset = 0;
  std::vector<float> values;
};

// Each parameter of a small network. Of a large one each tensor, along its gradient: the slope along one of millions of
// parameters is less than the rounding of the loss.
std::vector<Direction> Directions(const Model& model, const std::vector<float>& gradient) {
  std::vector<Direction> directions;
  for (const TensorInfo& tensor : model.tensors()) {
    if (!tensor.trained) break;
    if (!IsLarge(model)) {
      for (size_t i = 0; i < tensor.elements(); ++i) directions.push_back({.offset = tensor.offset + i, .values = {1}});
      continue;
    }
    Direction direction{.offset = tensor.offset, .values = {}};
    const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
    direction.values.assign(begin, begin + static_cast<std::ptrdiff_t>(tensor.elements()));
    double square = 0;
    for (float value : direction.values) square += std::pow(value, 2);
    for (float& value : direction.values) value /= static_cast<float>(std::sqrt(square));
    directions.push_back(std::move(direction));
  }
  return directions;
}

// The loss after a step along `direction`; the parameters are as before.
double LossBeside(Model& model, const images::Batch& batch, const Direction& direction, float step) {
  const auto moved = model.parameters().subspan(direction.offset, direction.values.size());
  const std::vector<float> kept = Copy(moved);
  for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction.values[i];
  const double loss = LossAt(model, batch);
  std::copy(kept.begin(), kept.end(), moved.begin());
  return loss;
}

// The slope is the central difference of the loss.
TEST_P(EveryModel, PushedGradientIsTheSlopeOfTheLoss) {
  const auto model = MakeModel(GetParam());
  // Many layers of batch normalisation bend the loss more, and the more so the smaller the batch.
  const images::Batch batch = TinyBatch(GetParam(), IsLarge(*model) ? 16 : 6);
  LossAt(*model, batch);
  const std::vector<float> gradient = Copy(model->push());
  const float step = IsLarge(*model) ? 2e-4f : 4e-3f;
  double error = 0, norm = 0;
  for (const Direction& direction : Directions(*model, gradient)) {
    const double above = LossBeside(*model, batch, direction, step);
    const double below = LossBeside(*model, batch, direction, -step);
    double pushed = 0;
    for (size_t i = 0; i < direction.values.size(); ++i) pushed += gradient[direction.offset + i] * direction.values[i];
    error += std::pow((above - below) / (2 * step) - pushed, 2);
    norm += std::pow(pushed, 2);
  }
  EXPECT_GT(norm, 0.01);
  // Rounding of the loss, and the corners of ReLU and pooling.
  EXPECT_LT(std::sqrt(error / norm), 0.02);
}

TEST_P(EveryModel, StepReplacesWhatWasPushedAndLeavesTheParameters) {
  const auto model = MakeModel(GetParam());
  const std::vector<float> parameters = Copy(model->parameters());
  const float* const memory = model->push().data();
  const images::Batch batch = TinyBatch(GetParam(), 8);
  LossAt(*model, batch);
  const std::vector<float> once = Copy(model->push());
  std::fill(model->push().begin(), model->push().end(), 99.0f);
  LossAt(*model, batch);
  EXPECT_EQ(Copy(model->push()), once);
  EXPECT_EQ(model->push().data(), memory);
  EXPECT_EQ(Copy(model->parameters()), parameters);
}

TEST_P(EveryModel, LossFallsAlongTheGradient) {
  const auto model = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 32);
  const double before = LossAt(*model, batch);
  const int steps = IsLarge(*model) ? 40 : 250;
  for (int step = 0; step < steps; ++step) {
    LossAt(*model, batch);
    const absl::Span<float> parameters = model->parameters(), push = model->push();
    for (size_t i = 0; i < model->trained_elements(); ++i) parameters[i] -= 0.2f * push[i];
    // What the servers do with buffers.
    std::copy(push.begin() + model->trained_elements(), push.end(), parameters.begin() + model->trained_elements());
  }
  EXPECT_LT(LossAt(*model, batch), before / 3);
  std::vector<int64_t> predictions(32);
  const absl::StatusOr<StepResult> result = model->Evaluate(View(batch), absl::MakeSpan(predictions));
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->correct, 28u);
  uint64_t equal = 0;
  for (size_t i = 0; i < predictions.size(); ++i) equal += predictions[i] == batch.labels[i] ? 1 : 0;
  EXPECT_EQ(result->correct, equal);
}

TEST(Model, TopFiveCountsLabelsOfTheFiveLargestOutputs) {
  ModelSpec spec = TinyMlp();
  spec.classes = 12;
  const auto model = MakeModel(spec);
  std::fill(model->parameters().begin(), model->parameters().end(), 0.0f);
  // Outputs are the biases: 3 is the largest, then 0, 1, 2, 4; 5 equals 4 and comes after it.
  const std::vector<float> outputs = {8, 7, 6, 9, 5, 5, 4, 3, 2, 1, 0, -1};
  std::copy(outputs.begin(), outputs.end(), Find(*model, model->parameters(), "fc2.bias").begin());
  images::Batch batch = TinyBatch(spec, 4);
  batch.labels = {3, 4, 5, 11};
  std::vector<int64_t> predictions(4);
  absl::StatusOr<StepResult> result = model->Evaluate(View(batch), absl::MakeSpan(predictions));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->correct, 1u);
  EXPECT_EQ(result->correct_top5, 2u);
  // What is no number is not among the best.
  for (float& bias : Find(*model, model->parameters(), "fc2.bias")) bias = std::nanf("");
  result = model->Evaluate(View(batch), absl::MakeSpan(predictions));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->correct_top5, 0u);
}

TEST_P(EveryModel, EvaluationChangesNothing) {
  const auto model = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 8);
  LossAt(*model, batch);
  const std::vector<float> parameters = Copy(model->parameters()), push = Copy(model->push());
  std::vector<int64_t> predictions(8);
  ASSERT_TRUE(model->Evaluate(View(batch), absl::MakeSpan(predictions)).ok());
  EXPECT_EQ(Copy(model->parameters()), parameters);
  EXPECT_EQ(Copy(model->push()), push);
}

TEST_P(EveryModel, WrongBatchesAreRefusedAndChangeNothing) {
  const auto model = MakeModel(GetParam());
  std::fill(model->push().begin(), model->push().end(), 99.0f);
  const auto refusal = [&model](const images::Batch& batch) {
    const absl::Status status = model->Step(View(batch)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  images::Batch batch = TinyBatch(GetParam(), 2);
  batch.labels[1] = 3;
  EXPECT_THAT(refusal(batch), HasSubstr("label 3 is not below the model's 3 classes"));
  batch.labels[1] = -1;
  EXPECT_THAT(refusal(batch), HasSubstr("label -1"));
  batch.labels[1] = 0;
  batch.images.pop_back();
  EXPECT_THAT(refusal(batch), HasSubstr("a batch of 2 labels"));
  EXPECT_THAT(refusal(images::Batch()), HasSubstr("at least one label"));
  EXPECT_EQ(Copy(model->push()), std::vector<float>(model->elements(), 99.0f));
}

// With all weights 0 each channel of the first convolution is its bias everywhere: mean = bias, variance = 0.
TEST(BatchNorm, PushesStatisticsMovedATenthOfTheWay) {
  const auto model = MakeModel(TinyCnn(true));
  for (float& weight : Find(*model, model->parameters(), "conv1.weight")) weight = 0;
  for (float& bias : Find(*model, model->parameters(), "conv1.bias")) bias = 5;
  LossAt(*model, TinyBatch(TinyCnn(true), 8));
  EXPECT_THAT(Find(*model, model->push(), "bn1.running_mean"), Each(FloatNear(0.5f, 1e-6f)));
  EXPECT_THAT(Find(*model, model->push(), "bn1.running_var"), Each(FloatNear(0.9f, 1e-6f)));
  EXPECT_THAT(Find(*model, model->parameters(), "bn1.running_mean"), Each(0.0f));
}

// A batch of one image whose layers end with one pixel has no variance.
TEST(BatchNorm, OneValueAChannelLeavesTheStatistics) {
  const auto model = MakeModel(TinyImagesForResnet());
  LossAt(*model, TinyBatch(TinyImagesForResnet(), 1));
  EXPECT_THAT(Copy(model->push()), Each(::testing::Truly([](float value) { return std::isfinite(value); })));
  EXPECT_THAT(Find(*model, model->push(), "layer4.1.bn2.running_var"), Each(1.0f));
  EXPECT_THAT(Find(*model, model->push(), "bn1.running_var"), Each(::testing::Ne(1.0f)));
}

TEST(BatchNorm, EvaluationUsesTheAgreedStatistics) {
  const auto model = MakeModel(TinyCnn(true));
  const images::Batch batch = TinyBatch(TinyCnn(true), 8);
  std::vector<int64_t> predictions(8);
  const double before = model->Evaluate(View(batch), absl::MakeSpan(predictions))->loss;
  const double trained = LossAt(*model, batch);
  for (float& mean : Find(*model, model->parameters(), "bn2.running_mean")) mean = 3;
  EXPECT_NE(model->Evaluate(View(batch), absl::MakeSpan(predictions))->loss, before);
  EXPECT_EQ(LossAt(*model, batch), trained);
}

TEST(Model, SeveralChannelsAreRead) {
  for (ModelSpec spec : {TinyCnn(false), TinyImagesForResnet()}) {
    spec.channels = 3;
    const auto model = MakeModel(spec);
    EXPECT_GT(LossAt(*model, TinyBatch(spec, 4)), 0);
  }
}

// What a step makes may be on its way while the next one writes elsewhere.
TEST_P(EveryModel, StepsWriteWhereTheyAreTold) {
  const auto model = MakeModel(GetParam()), first = MakeModel(GetParam()), second = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 4);
  LossAt(*model, batch);
  const std::vector<float> once = Copy(model->push());
  model->UsePush(first->push());
  LossAt(*model, batch);
  EXPECT_EQ(Copy(first->push()), once);
  std::fill(first->push().begin(), first->push().end(), 99.0f);
  model->UsePush(second->push());
  LossAt(*model, batch);
  EXPECT_EQ(Copy(second->push()), once);
  EXPECT_EQ(Copy(first->push()), std::vector<float>(model->elements(), 99.0f));
}

TEST_P(EveryModel, StepsReadWhereTheyAreTold) {
  const auto model = MakeModel(GetParam()), other = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 4);
  for (float& weight : other->parameters()) weight *= 0.5f;
  const double before = LossAt(*model, batch), wanted = LossAt(*other, batch);
  ASSERT_NE(before, wanted);
  std::vector<float> weights = Copy(other->parameters());
  model->UseParameters(absl::MakeSpan(weights));
  EXPECT_EQ(LossAt(*model, batch), wanted);
  EXPECT_EQ(Copy(model->push()), Copy(other->push()));
  EXPECT_EQ(model->parameters().data(), weights.data());
  // It reads them, and keeps no copy.
  std::fill(weights.begin(), weights.end(), 0.0f);
  EXPECT_NE(LossAt(*model, batch), wanted);
}

// Weights that come when they are asked for, and no earlier: what has not come is no number.
class LateWeights : public Arrival {
 public:
  LateWeights(absl::Span<const float> weights, absl::Span<float> parameters)
      : weights_(weights), parameters_(parameters) {
    std::fill(parameters.begin(), parameters.end(), std::nanf(""));
  }
  absl::Status AwaitUpTo(uint64_t end) override {
    asked.push_back(end);
    std::copy(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(end), parameters_.begin());
    return asked.size() < fails_at ? absl::OkStatus() : absl::FailedPreconditionError("fenced");
  }
  absl::Status AwaitAll() override {
    ++all;
    std::copy(weights_.begin(), weights_.end(), parameters_.begin());
    return absl::OkStatus();
  }

  std::vector<uint64_t> asked;
  int all = 0;
  size_t fails_at = 1000;

 private:
  absl::Span<const float> weights_;
  absl::Span<float> parameters_;
};

TEST_P(EveryModel, EachLayerWaitsForItsOwnWeightsAndTheGradientIsTheSame) {
  const auto model = MakeModel(GetParam());
  const images::Batch batch = TinyBatch(GetParam(), 4);
  const double loss = LossAt(*model, batch);
  const std::vector<float> wanted = Copy(model->push()), weights = Copy(model->parameters());
  LateWeights late(weights, model->parameters());
  BatchView view = View(batch);
  view.arrival = &late;
  const auto result = model->Step(view);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, loss);
  EXPECT_EQ(Copy(model->push()), wanted);
  EXPECT_EQ(late.all, 1);
  if (model->elements() == model->trained_elements()) {
    ASSERT_GT(late.asked.size(), 1);
    EXPECT_LT(late.asked.front(), model->elements());
  } else {
    EXPECT_TRUE(late.asked.empty()) << "averaged buffers are needed at once";
  }
  // The next step is one as all others.
  EXPECT_EQ(LossAt(*model, batch), loss);
}

TEST(Model, AVisionTransformerWaitsLayerByLayer) {
  const ModelSpec spec = {
      .kind = ModelKind::kVitTiny, .hidden = {}, .filters = {}, .classes = 3, .channels = 3, .height = 32, .width = 32};
  const auto model = MakeModel(spec);
  const images::Batch batch = TinyBatch(spec, 2);
  const double loss = LossAt(*model, batch);
  const std::vector<float> wanted = Copy(model->push()), weights = Copy(model->parameters());
  LateWeights late(weights, model->parameters());
  BatchView view = View(batch);
  view.arrival = &late;
  const auto result = model->Step(view);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, loss);
  EXPECT_EQ(Copy(model->push()), wanted);
  EXPECT_TRUE(std::is_sorted(late.asked.begin() + 2, late.asked.end())) << "but for the patches";
}

TEST(Model, ALayerWhoseWeightsDoNotComeEndsTheStepWithThatStatus) {
  const auto model = MakeModel(TinyMlp());
  const images::Batch batch = TinyBatch(TinyMlp(), 4);
  const double loss = LossAt(*model, batch);
  const std::vector<float> pushed = Copy(model->push()), weights = Copy(model->parameters());
  LateWeights late(weights, model->parameters());
  late.fails_at = 2;
  BatchView view = View(batch);
  view.arrival = &late;
  EXPECT_EQ(model->Step(view).status(), absl::FailedPreconditionError("fenced"));
  EXPECT_EQ(Copy(model->push()), pushed) << "which may still be on its way";
  std::copy(weights.begin(), weights.end(), model->parameters().begin());
  EXPECT_EQ(LossAt(*model, batch), loss);
}

// Every gradient that is called ready has its last value, and in the end all of them are.
TEST_P(EveryModel, GradientsBecomeReadyFromTheLastToTheFirst) {
  const auto model = MakeModel(GetParam());
  std::vector<std::pair<uint64_t, std::vector<float>>> seen;
  const images::Batch batch = TinyBatch(GetParam(), 4);
  const auto result = model->Step(View(batch), [&](uint64_t from) {
    seen.emplace_back(from, std::vector<float>(model->push().begin() + from, model->push().end()));
  });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_GT(seen.size(), 2);
  EXPECT_EQ(seen.front().first, model->trained_elements());
  EXPECT_EQ(seen.back().first, 0);
  for (size_t i = 0; i < seen.size(); ++i) {
    const auto& [from, values] = seen[i];
    if (i > 0) {
      EXPECT_LT(from, seen[i - 1].first);
    }
    EXPECT_EQ(values, Copy(model->push().subspan(from))) << "from " << from;
  }
}

TEST(Model, RoomForPredictionsMustFit) {
  const auto model = MakeModel(TinyMlp());
  std::vector<int64_t> predictions(3);
  const absl::Status status = model->Evaluate(View(TinyBatch(TinyMlp(), 4)), absl::MakeSpan(predictions)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(Model, SpecThatCannotBeBuiltIsRefused) {
  ModelSpec spec = TinyCnn(false);
  spec.filters = {1, 2, 3};
  EXPECT_EQ(Model::Create(spec, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Model, DeviceThatLibTorchHasNotIsRefusedInItsWords) {
  const Device last = {.kind = Device::Kind::kCuda, .index = 63};
  const absl::Status status = Model::Create(TinyMlp(), 1, last).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("LibTorch: "));
}

TEST(Model, LibTorchSaysItsVersion) { EXPECT_THAT(LibTorchVersion(), ::testing::MatchesRegex("2\\.[0-9]+\\..*")); }

}  // namespace
}  // namespace slackline::worker::model_test

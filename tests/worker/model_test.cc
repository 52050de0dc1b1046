#include "worker/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/model_fixture.h"

namespace slackline::worker {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class EveryModel : public ::testing::TestWithParam<ModelSpec> {};

INSTANTIATE_TEST_SUITE_P(, EveryModel, ::testing::Values(TinyMlp(), TinyCnn(false), TinyCnn(true)),
                         [](const ::testing::TestParamInfo<ModelSpec>& info) {
                           return std::string(info.param.kind == ModelKind::kMlp ? "Mlp" : "Cnn") +
                                  (info.param.batch_norm ? "BatchNorm" : "");
                         });

double LossAt(Model& model, const Batch& batch) {
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
  const Batch batch = TinyBatch(GetParam(), 8);
  const auto trained = model->parameters().subspan(0, model->trained_elements());
  std::fill(trained.begin(), trained.end(), 0.0f);
  EXPECT_NEAR(LossAt(*model, batch), std::log(3), 1e-6);

  Find(*model, model->parameters(), "fc2.bias")[2] = 10;
  std::vector<int64_t> predictions(8, -1);
  ASSERT_TRUE(model->Evaluate(View(batch), absl::MakeSpan(predictions)).ok());
  EXPECT_THAT(predictions, Each(2));
}

// The central difference of the loss along each parameter.
TEST_P(EveryModel, PushedGradientIsTheSlopeOfTheLoss) {
  const auto model = MakeModel(GetParam());
  const Batch batch = TinyBatch(GetParam(), 6);
  LossAt(*model, batch);
  const std::vector<float> gradient = Copy(model->push());
  const float step = 4e-3f;
  double error = 0, norm = 0;
  for (size_t i = 0; i < model->trained_elements(); ++i) {
    float& parameter = model->parameters()[i];
    const float kept = parameter;
    parameter = kept + step;
    const double above = LossAt(*model, batch);
    parameter = kept - step;
    const double below = LossAt(*model, batch);
    parameter = kept;
    error += std::pow((above - below) / (2 * step) - gradient[i], 2);
    norm += std::pow(gradient[i], 2);
  }
  EXPECT_GT(norm, 0.01);
  // Rounding of the loss, and the corners of ReLU and pooling.
  EXPECT_LT(std::sqrt(error / norm), 0.02);
}

TEST_P(EveryModel, StepReplacesWhatWasPushedAndLeavesTheParameters) {
  const auto model = MakeModel(GetParam());
  const std::vector<float> parameters = Copy(model->parameters());
  const float* const memory = model->push().data();
  const Batch batch = TinyBatch(GetParam(), 8);
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
  const Batch batch = TinyBatch(GetParam(), 32);
  const double before = LossAt(*model, batch);
  for (int step = 0; step < 250; ++step) {
    LossAt(*model, batch);
    for (size_t i = 0; i < model->trained_elements(); ++i) model->parameters()[i] -= 0.2f * model->push()[i];
    // What the servers do with buffers.
    std::copy(model->push().begin() + model->trained_elements(), model->push().end(),
              model->parameters().begin() + model->trained_elements());
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

TEST_P(EveryModel, EvaluationChangesNothing) {
  const auto model = MakeModel(GetParam());
  const Batch batch = TinyBatch(GetParam(), 8);
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
  const auto refusal = [&model](const Batch& batch) {
    const absl::Status status = model->Step(View(batch)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Batch batch = TinyBatch(GetParam(), 2);
  batch.labels[1] = 3;
  EXPECT_THAT(refusal(batch), HasSubstr("label 3 is not below the model's 3 classes"));
  batch.labels[1] = -1;
  EXPECT_THAT(refusal(batch), HasSubstr("label -1"));
  batch.labels[1] = 0;
  batch.images.pop_back();
  EXPECT_THAT(refusal(batch), HasSubstr("a batch of 2 labels"));
  EXPECT_THAT(refusal(Batch()), HasSubstr("at least one label"));
  EXPECT_THAT(Copy(model->push()), Each(99.0f));
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

TEST(BatchNorm, EvaluationUsesTheAgreedStatistics) {
  const auto model = MakeModel(TinyCnn(true));
  const Batch batch = TinyBatch(TinyCnn(true), 8);
  std::vector<int64_t> predictions(8);
  const double before = model->Evaluate(View(batch), absl::MakeSpan(predictions))->loss;
  const double trained = LossAt(*model, batch);
  for (float& mean : Find(*model, model->parameters(), "bn2.running_mean")) mean = 3;
  EXPECT_NE(model->Evaluate(View(batch), absl::MakeSpan(predictions))->loss, before);
  EXPECT_EQ(LossAt(*model, batch), trained);
}

TEST(Model, SeveralChannelsAreRead) {
  ModelSpec spec = TinyCnn(false);
  spec.channels = 3;
  const auto model = MakeModel(spec);
  EXPECT_GT(LossAt(*model, TinyBatch(spec, 4)), 0);
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

TEST(Model, LibTorchSaysItsVersion) { EXPECT_THAT(LibTorchVersion(), ::testing::MatchesRegex("2\\.[0-9]+\\..*")); }

}  // namespace
}  // namespace slackline::worker

// Rounds of local training with real networks.
#include "worker/local_training/local_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::local_round_test {
namespace {

using testing::FloatNear;
using testing::Pointwise;

LocalConfig Sgd(double lr) { return {.steps = 1, .optimizer = {.lr = lr}}; }

// So many steps on batches that differ.
StepResult RunRound(LocalRound& round, const ModelSpec& spec, Model& model, size_t steps) {
  round.Begin(model, nullptr);
  for (size_t i = 0; i < steps; ++i) {
    const images::Batch batch = TinyBatch(spec, 9 + 3 * i);
    const auto result = model.Step(View(batch));
    EXPECT_TRUE(result.ok()) << result.status();
    round.Step(model, *result);
  }
  return round.Finish(model);
}

TEST(LocalRound, OneStepPushesTheGradientTimesItsLearningRate) {
  const ModelSpec spec = TinyMlp();
  const auto plain = MakeModel(spec), local = MakeModel(spec);
  const images::Batch batch = TinyBatch(spec, 9);
  ASSERT_TRUE(plain->Step(View(batch)).ok());
  LocalRound round(Sgd(0.5));
  const StepResult result = RunRound(round, spec, *local, 1);
  EXPECT_EQ(result.samples, 9u);
  std::vector<float> expected = Copy(plain->push());
  for (float& value : expected) value *= 0.5f;
  EXPECT_THAT(Copy(local->push()), Pointwise(FloatNear(1e-6), expected));
}

TEST(LocalRound, ModelHasTheWeightsOfTheBeginningAfterwards) {
  const ModelSpec spec = TinyCnn(/*batch_norm=*/true);
  const auto model = MakeModel(spec);
  const std::vector<float> start = Copy(model->parameters());
  LocalRound round(Sgd(0.1));
  const StepResult result = RunRound(round, spec, *model, 3);
  EXPECT_EQ(Copy(model->parameters()), start);
  EXPECT_EQ(result.samples, 9u + 12 + 15);
}

TEST(LocalRound, BatchNormStatisticsMoveWithEachStepAndArePushedAsTheyAreInTheEnd) {
  const ModelSpec spec = TinyCnn(/*batch_norm=*/true);
  const auto model = MakeModel(spec), alone = MakeModel(spec);
  LocalRound round(Sgd(0.1));
  RunRound(round, spec, *model, 3);

  // One that trains by itself.
  const std::vector<float> start = Copy(alone->parameters());
  const size_t trained = alone->trained_elements();
  ASSERT_LT(trained, alone->elements());
  for (size_t step = 0; step < 3; ++step) {
    const images::Batch batch = TinyBatch(spec, 9 + 3 * step);
    ASSERT_TRUE(alone->Step(View(batch)).ok());
    for (size_t i = 0; i < alone->elements(); ++i) {
      float& value = alone->parameters()[i];
      value = i < trained ? value - 0.1f * alone->push()[i] : alone->push()[i];
    }
  }
  std::vector<float> expected = Copy(alone->parameters());
  for (size_t i = 0; i < trained; ++i) expected[i] = start[i] - expected[i];
  EXPECT_THAT(Copy(model->push()), Pointwise(FloatNear(1e-6), expected));
  const auto buffers = static_cast<std::ptrdiff_t>(trained);
  EXPECT_NE(std::vector<float>(expected.begin() + buffers, expected.end()),
            std::vector<float>(start.begin() + buffers, start.end()));
}

}  // namespace
}  // namespace slackline::worker::local_round_test

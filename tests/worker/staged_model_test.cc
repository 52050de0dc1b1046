// A network in stages against the same network in one piece.
#include "worker/model/staged_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model_fixture.h"
#include "worker/group/local_group.h"

namespace slackline::worker::staged_model_test {
namespace {

using ::testing::HasSubstr;

ModelSpec DeepMlp() {
  return {.kind = ModelKind::kMlp, .hidden = {9, 7, 8}, .filters = {}, .classes = 3, .height = 4, .width = 4};
}

ModelSpec ShortVit() {
  return {
      .kind = ModelKind::kVitTiny, .hidden = {}, .filters = {}, .classes = 3, .height = 8, .width = 8, .patch_size = 4};
}

std::unique_ptr<LocalGroup> InStages(const ModelSpec& spec, size_t stages, size_t micro_batches) {
  SetComputeThreads(1);
  absl::StatusOr<std::unique_ptr<LocalGroup>> group =
      LocalGroup::Create(spec, 1, std::vector<std::string>(stages, "cpu"),
                         {.timeouts = {}, .buckets = {}, .stages = stages, .micro_batches = micro_batches});
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

struct StagesAndParts {
  size_t stages;
  size_t micro_batches;
};

class StagedModelTest : public ::testing::TestWithParam<StagesAndParts> {};

INSTANTIATE_TEST_SUITE_P(, StagedModelTest,
                         ::testing::Values(StagesAndParts{2, 1}, StagesAndParts{2, 4}, StagesAndParts{3, 5},
                                           StagesAndParts{4, 11}),
                         [](const ::testing::TestParamInfo<StagesAndParts>& info) {
                           return std::to_string(info.param.stages) + "StagesOn" +
                                  std::to_string(info.param.micro_batches);
                         });

TEST_P(StagedModelTest, HasTheGradientsOfTheWholeModel) {
  ModelSpec three_channels = TinyCnn(false);
  three_channels.channels = 3;
  for (const ModelSpec& spec : {DeepMlp(), TinyCnn(false), three_channels}) {
    const auto staged = InStages(spec, GetParam().stages, GetParam().micro_batches);
    const auto whole = MakeModel(spec);
    EXPECT_EQ(staged->devices(), GetParam().stages);
    EXPECT_EQ(Copy(staged->model().parameters()), Copy(whole->parameters()));
    images::Batch batch = TinyBatch(spec, 11);
    std::vector<float> parameters = Copy(whole->parameters()), push(whole->elements());
    staged->model().UseParameters(absl::MakeSpan(parameters));
    staged->model().UsePush(absl::MakeSpan(push));
    for (int round = 0; round < 3; ++round) {
      if (round == 2) {
        // As of mixed images.
        batch.share = 0.6f;
        batch.other_labels.assign(batch.labels.rbegin(), batch.labels.rend());
      }
      const absl::StatusOr<StepResult> expected = whole->Step(ViewOf(batch)), result = staged->Step(ViewOf(batch));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->samples, 11u);
      EXPECT_EQ(result->correct, expected->correct);
      EXPECT_NEAR(result->loss, expected->loss, 1e-6);
      for (size_t i = 0; i < whole->elements(); ++i) {
        ASSERT_NEAR(push[i], whole->push()[i], 1e-6) << "element " << i;
        whole->parameters()[i] -= 0.5f * whole->push()[i];
        parameters[i] = whole->parameters()[i];
      }
    }
  }
}

void ExpectNearGradients(Model& staged, Model& whole, double most) {
  for (size_t i = 0; i < whole.elements(); ++i) {
    ASSERT_NEAR(staged.push()[i], whole.push()[i], most) << "element " << i;
  }
}

TEST(StagedModel, CutsATransformerBetweenItsBlocks) {
  const auto whole = MakeModel(ShortVit());
  const images::Batch batch = TinyBatch(ShortVit(), 7);
  ASSERT_TRUE(whole->Step(View(batch)).ok());
  for (const size_t stages : {2, 14}) {
    const auto staged = InStages(ShortVit(), stages, 3);
    for (int round = 0; round < 2; ++round) ASSERT_TRUE(staged->Step(View(batch)).ok());
    ExpectNearGradients(staged->model(), *whole, 2e-6);
  }
}

TEST(StagedModel, EvaluatesAsTheWholeModel) {
  for (const ModelSpec& spec : {TinyCnn(false), ShortVit()}) {
    const auto staged = InStages(spec, 3, 4);
    const auto whole = MakeModel(spec);
    const images::Batch batch = TinyBatch(spec, 9);
    std::vector<int64_t> predictions(9), expected(9);
    const auto result = staged->model().Evaluate(View(batch), absl::MakeSpan(predictions));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss, whole->Evaluate(View(batch), absl::MakeSpan(expected))->loss);
    EXPECT_EQ(predictions, expected);
    EXPECT_THAT(std::string(staged->model().Evaluate(View(batch), {}).status().message()),
                HasSubstr("room for 0 predictions of 9 images"));
  }
}

TEST(StagedModel, StepsInOneThreadAsInSeveral) {
  const auto staged = InStages(DeepMlp(), 3, 1), alone = InStages(DeepMlp(), 3, 1);
  const images::Batch batch = TinyBatch(DeepMlp(), 5);
  ASSERT_TRUE(staged->Step(View(batch)).ok());
  ASSERT_TRUE(alone->model().Step(View(batch)).ok());
  EXPECT_EQ(Copy(staged->model().push()), Copy(alone->model().push()));
}

TEST(StagedModel, ComputesInHalfPrecisionWithTheLossScaled) {
  ModelSpec spec = ShortVit();
  const auto whole = MakeModel(spec);
  spec.precision = Precision::kBf16;
  const auto staged = InStages(spec, 3, 2), scaled = InStages(spec, 3, 2);
  const images::Batch batch = TinyBatch(spec, 6);
  BatchView large = View(batch);
  large.loss_scale = 1024;
  const auto expected = whole->Step(View(batch)), result = staged->Step(View(batch)), same = scaled->Step(large);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_NEAR(result->loss, expected->loss, 0.02);
  EXPECT_NE(result->loss, expected->loss);
  EXPECT_EQ(same->loss, result->loss);
  // By a power of two, which bf16 keeps as it is.
  EXPECT_EQ(Copy(scaled->model().push()), Copy(staged->model().push()));
  ExpectNearGradients(staged->model(), *whole, 0.02);
}

TEST(StagedModel, BatchesSmallerThanTheirPartsHaveFewerAndMistakesAreNamed) {
  const auto staged = InStages(DeepMlp(), 2, 8);
  EXPECT_TRUE(staged->Step(View(TinyBatch(DeepMlp(), 3))).ok());
  EXPECT_FALSE(staged->Step(View(images::Batch())).ok());
  images::Batch batch = TinyBatch(DeepMlp(), 4);
  batch.labels[3] = 77;
  EXPECT_THAT(std::string(staged->Step(View(batch)).status().message()), HasSubstr("label 77"));
  EXPECT_TRUE(staged->Step(View(TinyBatch(DeepMlp(), 4))).ok());
}

TEST(StagedModel, WhatDoesNotFitIsRefused) {
  const absl::Status devices =
      LocalGroup::Create(DeepMlp(), 1, {"cpu", "cpu", "cpu"}, {.timeouts = {}, .buckets = {}, .stages = 2}).status();
  EXPECT_EQ(devices.message(), "worker.stages is 2, worker.devices names 3; a stage is one device");
  const absl::Status norm =
      LocalGroup::Create(TinyCnn(true), 1, {"cpu", "cpu"}, {.timeouts = {}, .buckets = {}, .stages = 2}).status();
  EXPECT_THAT(std::string(norm.message()), HasSubstr("batch_norm"));
  ModelSpec dropping = ShortVit();
  dropping.dropout = 0.1;
  const absl::Status draws =
      LocalGroup::Create(dropping, 1, {"cpu", "cpu"}, {.timeouts = {}, .buckets = {}, .stages = 2}).status();
  EXPECT_THAT(std::string(draws.message()), HasSubstr("dropout"));
}

}  // namespace
}  // namespace slackline::worker::staged_model_test

#include "worker/group/local_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::local_group_test {
namespace {

using ::testing::HasSubstr;

// Many buckets in the smallest of models.
std::unique_ptr<LocalGroup> MakeGroup(const ModelSpec& spec, size_t devices) {
  SetComputeThreads(1);
  absl::StatusOr<std::unique_ptr<LocalGroup>> group = LocalGroup::Create(
      spec, 1, std::vector<std::string>(devices, "cpu"), {.timeouts = {}, .buckets = {.first = 7, .each = 13}});
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

struct Shape {
  size_t devices;
  size_t samples;
};

class GroupShape : public ::testing::TestWithParam<Shape> {};

// Even parts, uneven parts, and fewer samples than devices.
INSTANTIATE_TEST_SUITE_P(, GroupShape,
                         ::testing::Values(Shape{2, 8}, Shape{4, 8}, Shape{2, 7}, Shape{4, 11}, Shape{4, 3},
                                           Shape{3, 1}),
                         [](const ::testing::TestParamInfo<Shape>& info) {
                           return std::to_string(info.param.devices) + "DevicesOn" + std::to_string(info.param.samples);
                         });

TEST_P(GroupShape, EqualsOneDeviceOnTheWholeBatch) {
  for (const ModelSpec& spec : {TinyMlp(), TinyCnn(false)}) {
    const auto one = MakeGroup(spec, 1), many = MakeGroup(spec, GetParam().devices);
    images::Batch batch = TinyBatch(spec, GetParam().samples);
    // The others must follow what a pull writes into the first.
    for (int round = 0; round < 3; ++round) {
      if (round == 1) {
        // As of mixed images.
        batch.share = 0.7f;
        batch.other_labels.assign(batch.labels.rbegin(), batch.labels.rend());
      }
      const absl::StatusOr<StepResult> expected = one->Step(ViewOf(batch)), result = many->Step(ViewOf(batch));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->samples, expected->samples);
      EXPECT_EQ(result->correct, expected->correct);
      EXPECT_NEAR(result->loss, expected->loss, 1e-6);
      for (size_t i = 0; i < one->model().elements(); ++i) {
        ASSERT_NEAR(many->model().push()[i], one->model().push()[i], 1e-6) << "element " << i;
        one->model().parameters()[i] -= 0.5f * one->model().push()[i];
        many->model().parameters()[i] = one->model().parameters()[i];
      }
    }
  }
}

TEST(LocalGroup, TwoDevicesOnHalvesReproduceTheTrainingCurveOfOne) {
  for (const ModelSpec& spec : {TinyMlp(), TinyCnn(false)}) {
    const auto one = MakeGroup(spec, 1), two = MakeGroup(spec, 2);
    double first_loss = 0, last_loss = 0;
    for (size_t step = 0; step < 100; ++step) {
      const images::Batch batch = TinyBatch(spec, 24 + step % 9);
      const absl::StatusOr<StepResult> expected = one->Step(View(batch)), result = two->Step(View(batch));
      ASSERT_TRUE(expected.ok() && result.ok());
      EXPECT_NEAR(result->loss, expected->loss, 1e-5) << "step " << step;
      EXPECT_EQ(result->correct, expected->correct) << "step " << step;
      for (const auto& group : {one.get(), two.get()}) {
        for (size_t i = 0; i < group->model().elements(); ++i) {
          group->model().parameters()[i] -= 0.2f * group->model().push()[i];
        }
      }
      (step == 0 ? first_loss : last_loss) = expected->loss;
    }
    EXPECT_LT(last_loss, 0.5 * first_loss);
  }
}

TEST(LocalGroup, SumsAreReadyInPartsAndTheSameInEveryRun) {
  const ModelSpec spec = TinyCnn(true);
  const images::Batch batch = TinyBatch(spec, 11);
  std::vector<float> first;
  for (int run = 0; run < 20; ++run) {
    const auto group = MakeGroup(spec, 4);
    std::vector<uint64_t> ready;
    ASSERT_TRUE(group->Step(View(batch), [&](uint64_t from) { ready.push_back(from); }).ok());
    ASSERT_FALSE(ready.empty());
    EXPECT_EQ(ready.back(), 0u);
    if (first.empty()) first = Copy(group->model().push());
    EXPECT_EQ(Copy(group->model().push()), first);
  }
}

TEST(LocalGroup, BuffersAreTheMeanByNumberOfSamples) {
  const ModelSpec spec = TinyCnn(true);
  const auto group = MakeGroup(spec, 2);
  const images::Batch batch = TinyBatch(spec, 7);
  ASSERT_TRUE(group->Step(View(batch)).ok());

  const auto alone = MakeModel(spec);
  const size_t pixels = size_t{spec.height} * spec.width;
  const absl::Span<const float> images(batch.images);
  const absl::Span<const int64_t> labels(batch.labels);
  ASSERT_TRUE(alone->Step({.images = images.subspan(0, 4 * pixels), .labels = labels.subspan(0, 4)}).ok());
  const std::vector<float> first = Copy(alone->push());
  ASSERT_TRUE(alone->Step({.images = images.subspan(4 * pixels), .labels = labels.subspan(4)}).ok());
  for (size_t i = 0; i < alone->elements(); ++i) {
    EXPECT_NEAR(group->model().push()[i], (4 * first[i] + 3 * alone->push()[i]) / 7, 1e-6) << "element " << i;
  }
}

TEST(LocalGroup, MistakeNamesTheDeviceAndTheNextStepWorks) {
  const auto group = MakeGroup(TinyMlp(), 2);
  images::Batch batch = TinyBatch(TinyMlp(), 4);
  const int64_t kept = batch.labels[3];
  batch.labels[3] = 77;
  const absl::Status status = group->Step(View(batch)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 1: label 77"));
  batch.labels[3] = kept;
  EXPECT_TRUE(group->Step(View(batch)).ok());
  EXPECT_FALSE(group->Step(View(images::Batch())).ok());
}

TEST(LocalGroup, NoDeviceNamedMeansOneCpu) {
  EXPECT_EQ((*LocalGroup::Create(TinyMlp(), 1, {}))->devices(), 1u);
  EXPECT_EQ(MakeGroup(TinyMlp(), 3)->devices(), 3u);
}

TEST(LocalGroup, UnknownDeviceIsRefused) {
  const absl::Status status = LocalGroup::Create(TinyMlp(), 1, {"cpu", "cuda:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"cuda:0\""));
}

}  // namespace
}  // namespace slackline::worker::local_group_test

// Vision transformers whose blocks are computed again in backward.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::checkpointing_test {
namespace {

// Counts what LibTorch allocates and frees in this thread, and in those that work for it.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    const int64_t now = now_ += bytes;
    int64_t most = most_;
    while (most < now && !most_.compare_exchange_weak(most, now)) continue;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t most() const { return most_; }

 private:
  std::atomic<int64_t> now_ = 0, most_ = 0;
};

ModelSpec SmallVit(bool checkpointing) {
  return {.kind = ModelKind::kVitTiny,
          .hidden = {},
          .filters = {},
          .classes = 3,
          .height = 16,
          .width = 16,
          .patch_size = 2,
          .dropout = 0.1,
          .stochastic_depth = 0.3,
          .checkpointing = checkpointing};
}

// The most that a step takes at a time, beside what is there before.
int64_t StepBytes(Model& model, const images::Batch& batch) {
  const auto meter = std::make_shared<Meter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  EXPECT_TRUE(model.Step(ViewOf(batch)).ok());
  return meter->most();
}

TEST(Checkpointing, GivesTheSameStepsInLessMemory) {
  const auto plain = MakeModel(SmallVit(false)), frugal = MakeModel(SmallVit(true));
  const images::Batch batch = TinyBatch(SmallVit(true), 4);
  const int64_t bytes = StepBytes(*plain, batch), fewer = StepBytes(*frugal, batch);
  EXPECT_GT(fewer, 0);
  EXPECT_LT(4 * fewer, 3 * bytes) << fewer << " bytes instead of " << bytes;
  double largest = 0;
  for (const float slope : plain->push()) largest = std::max<double>(largest, std::abs(slope));
  ASSERT_GT(largest, 1e-3);
  EXPECT_THAT(Copy(frugal->push()),
              testing::Pointwise(testing::FloatNear(static_cast<float>(1e-6 * largest)), Copy(plain->push())));
  EXPECT_EQ(plain->Step(ViewOf(batch))->loss, frugal->Step(ViewOf(batch))->loss);
}

TEST(Checkpointing, GradientsBecomeReadyFromTheLast) {
  const auto model = MakeModel(SmallVit(true));
  std::vector<uint64_t> seen;
  ASSERT_TRUE(model->Step(ViewOf(TinyBatch(SmallVit(true), 2)), [&](uint64_t from) { seen.push_back(from); }).ok());
  EXPECT_TRUE(std::is_sorted(seen.rbegin(), seen.rend()));
  EXPECT_GT(seen.size(), 10u);
  EXPECT_EQ(seen.back(), 0u);
}

TEST(Checkpointing, GoesWithFrozenBeginnings) {
  std::vector<std::vector<float>> pushes;
  for (const bool checkpointing : {false, true}) {
    ModelSpec spec = SmallVit(checkpointing);
    spec.groups = {{"patch_embed.*", true},
                   {"cls_token", true},
                   {"pos_embed", true},
                   {"blocks.0.*", true},
                   {"blocks.1.*.weight", true}};
    const auto model = MakeModel(spec);
    ASSERT_TRUE(model->Step(ViewOf(TinyBatch(spec, 3))).ok());
    pushes.push_back(Copy(model->push().first(model->pushed_elements())));
  }
  EXPECT_THAT(pushes[1], testing::Pointwise(testing::FloatNear(1e-6f), pushes[0]));
}

TEST(Checkpointing, GoesWithLowerPrecision) {
  std::vector<std::vector<float>> pushes;
  for (const bool checkpointing : {false, true}) {
    ModelSpec spec = SmallVit(checkpointing);
    spec.precision = Precision::kBf16;
    const auto model = MakeModel(spec);
    ASSERT_TRUE(model->Step(ViewOf(TinyBatch(spec, 3))).ok());
    pushes.push_back(Copy(model->push()));
  }
  EXPECT_THAT(pushes[1], testing::Pointwise(testing::FloatNear(1e-6f), pushes[0]));
}

}  // namespace
}  // namespace slackline::worker::checkpointing_test

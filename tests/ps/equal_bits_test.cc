// Copies of a shard that take the same pushes in the same order are equal to the bit, whatever their CPUs can do.
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/optimizer/kernels.h"
#include "gtest/gtest.h"
#include "ps/shard/shard_state.h"
#include "tests/each_target.h"

namespace slackline::ps::equal_bits_test {
namespace {

constexpr uint64_t kElements = 333, kTrainedElements = 300, kChunkOf = 128;
constexpr int kPushes = 10'000;

std::string BitsAfter(int pushes) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kAdamW;
  config.lr = 0.01;
  config.weight_decay = 0.01;
  config.clip_norm = 5;
  config.schedule.warmup_samples = 1000;
  ShardState shard({.begin = 0, .end = kElements, .trained = kTrainedElements}, config, kChunkOf);
  std::vector<float> gradient(kElements);
  const auto bytes = [&] {
    return ByteSegments({reinterpret_cast<const std::byte*>(gradient.data()), gradient.size() * sizeof(float)});
  };
  uint32_t random = 1;
  const auto fill = [&](float scale) {
    for (float& value : gradient) {
      random = random * 1664525u + 1013904223u;
      value = scale * (static_cast<float>(random >> 8) / 8388608.0f - 1.0f);
    }
  };
  fill(1);
  EXPECT_TRUE(shard.Seed(bytes()).ok());
  for (int push = 0; push < pushes; ++push) {
    // Now and then one that is clipped, and one from long ago.
    fill(push % 7 == 0 ? 3.0f : 0.1f);
    const Contribution part = {.pieces = {{.elements = kElements, .bytes = bytes()}},
                               .gradient_norm = push % 7 == 0 ? 30.0 : 1.0};
    shard.Apply({part}, {.lr_scale = push % 5 == 0 ? 0.25 : 1, .average_rate = 0.5, .samples = 3, .staleness = 2});
  }
  std::string bits;
  const ShardView view = shard.Snapshot();
  std::vector<const SliceView*> arrays = {&view.weights};
  for (const SliceView& array : view.arrays) arrays.push_back(&array);
  for (const SliceView* const array : arrays) {
    for (size_t i = 0; i < array->chunks(); ++i) {
      bits.append(reinterpret_cast<const char*>(array->chunk(i).data()), array->chunk(i).size() * sizeof(float));
    }
  }
  return bits;
}

TEST(EqualBits, AfterTenThousandPushesOfAdamOnEveryInstructionSet) {
  std::map<std::string, std::string> by_target;
  OnEachTarget(KernelTarget, [&] { by_target[KernelTarget()] = BitsAfter(kPushes); });
  ASSERT_FALSE(by_target.empty());
  for (const auto& [target, bits] : by_target) {
    EXPECT_TRUE(bits == by_target.begin()->second) << target << " differs from " << by_target.begin()->first;
    RecordProperty("target", target);
  }
  EXPECT_FALSE(BitsAfter(kPushes - 1) == by_target.begin()->second) << "one push makes a difference";
}

}  // namespace
}  // namespace slackline::ps::equal_bits_test

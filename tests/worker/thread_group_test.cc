// The local group with fake devices that do what a test says: without LibTorch, so that the thread sanitizer sees all
// of it.
#include "worker/group/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "absl/synchronization/notification.h"
#include "worker/group/silence.h"

namespace slackline::worker::thread_group_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kElements = 10;
// [7, 10), [5, 7), [3, 5), [1, 3), [0, 1).
constexpr BucketSizes kSmallBuckets = {.first = 3, .each = 2};

TEST(Buckets, LieOneBehindTheOtherFromTheEnd) {
  for (uint64_t elements : {1, 2, 3, 4, 5, 6, 7, 20, 21}) {
    const Buckets buckets(elements, kSmallBuckets);
    uint64_t end = elements;
    for (size_t i = 0; i < buckets.count(); ++i) {
      EXPECT_EQ(buckets.end(i), end);
      EXPECT_LT(buckets.begin(i), end);
      EXPECT_LE(end - buckets.begin(i), i == 0 ? 3u : 2u);
      end = buckets.begin(i);
      EXPECT_EQ(buckets.CompleteFrom(end), i + 1);
      EXPECT_EQ(buckets.CompleteFrom(end + 1), i);
    }
    EXPECT_EQ(end, 0u);
  }
}

// --- The sum ----------------------------------------------------------------------------------------------------

std::vector<std::vector<float>> RandomAddends(size_t devices, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<std::vector<float>> addends(devices, std::vector<float>(kElements));
  for (std::vector<float>& addend : addends) {
    for (float& element : addend) element = value(random);
  }
  return addends;
}

std::vector<Addend> Weighted(std::vector<std::vector<float>>& values) {
  std::vector<Addend> addends;
  for (std::vector<float>& value : values) {
    addends.push_back({.push = absl::MakeSpan(value), .weight = 1 / static_cast<float>(addends.size() + 2)});
  }
  return addends;
}

TEST(BucketSum, IsTheSameBitsInWhateverOrderTheDevicesCome) {
  std::mt19937 random(5);
  const std::vector<std::vector<float>> given = RandomAddends(4, random);
  std::vector<float> expected;
  for (size_t i = 0; i < kElements; ++i) {
    float sum = given[0][i] / 2;
    for (size_t d = 1; d < given.size(); ++d) sum += 1 / static_cast<float>(d + 2) * given[d][i];
    expected.push_back(sum);
  }
  BucketSum sum(kElements, kSmallBuckets);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<float>> values = given;
    sum.Begin(Weighted(values));
    std::vector<uint64_t> from(given.size(), kElements);
    for (size_t left = given.size(); left > 0;) {
      const size_t device = random() % given.size();
      if (from[device] == 0) continue;
      from[device] -= 1 + random() % from[device];
      sum.Arrive(device, from[device]);
      if (from[device] == 0) --left;
    }
    EXPECT_EQ(values[0], expected);
    for (size_t d = 0; d < given.size(); ++d) sum.Leave(d, /*failed=*/false);
  }
}

TEST(BucketSum, WhatIsReadyIsWholeAndStaysAsItIs) {
  BucketSum sum(kElements, kSmallBuckets);
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<float>> values = RandomAddends(3, random);
    const std::vector<std::vector<float>> given = values;
    sum.Begin(Weighted(values));
    std::vector<std::thread> threads;
    for (size_t d = 0; d < values.size(); ++d) {
      threads.emplace_back([&sum, d] {
        for (uint64_t from = kElements; from-- > 0;) sum.Arrive(d, from);
        sum.Help(d);
        sum.Leave(d, /*failed=*/false);
      });
    }
    uint64_t from = kElements;
    for (bool over = false; !over;) {
      const absl::StatusOr<BucketSum::Progress> progress = sum.Await(from, absl::Seconds(60));
      ASSERT_TRUE(progress.ok()) << progress.status();
      EXPECT_LE(progress->from, from);
      // What is ready is ready: a reader of it meets no writer, says the thread sanitizer.
      for (uint64_t i = progress->from; i < from; ++i) {
        EXPECT_EQ(values[0][i], given[0][i] / 2 + 1 / 3.0f * given[1][i] + 1 / 4.0f * given[2][i]);
      }
      from = progress->from;
      over = progress->over;
    }
    EXPECT_EQ(from, 0u);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(GroupSilence, IsCountedInLooksAndBrokenByAnyEvent) {
  GroupSilence silence(absl::Seconds(16), /*events=*/5);
  EXPECT_EQ(silence.look(), absl::Seconds(2));
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(silence.IsTooLong(5));
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(silence.IsTooLong(6));
  EXPECT_TRUE(silence.IsTooLong(6));
}

// --- The group --------------------------------------------------------------------------------------------------

// Its gradient is the first label of its part, everywhere. Comes element by element, from the last.
class ScriptedDevice : public Model {
 public:
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return kElements; }
  uint64_t trained_elements() const override { return kElements; }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<float> push() override { return push_; }
  void UsePush(absl::Span<float> memory) override { push_ = memory; }
  void UseParameters(absl::Span<float> memory) override { parameters_ = memory; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    for (uint64_t from = kElements; from-- > 0;) {
      if (before) {
        if (absl::Status status = before(from); !status.ok()) return status;
      }
      push_[from] = static_cast<float>(batch.labels.front());
      ready(from);
    }
    if (after) after();
    return StepResult{.samples = batch.labels.size(), .loss = static_cast<double>(batch.labels.front()), .correct = 1};
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView&, absl::Span<int64_t>) override { return StepResult{}; }

  // Called before each element is made.
  std::function<absl::Status(uint64_t element)> before;
  // Called behind the last.
  std::function<void()> after;

 private:
  const std::vector<TensorInfo> tensors_ = {{.name = "weight", .shape = {kElements}}};
  std::vector<float> own_parameters_ = std::vector<float>(kElements), own_push_ = std::vector<float>(kElements);
  absl::Span<float> parameters_ = absl::MakeSpan(own_parameters_), push_ = absl::MakeSpan(own_push_);
};

struct ScriptedDevices {
  explicit ScriptedDevices(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      owned.push_back(std::make_unique<ScriptedDevice>());
      scripts.push_back(static_cast<ScriptedDevice*>(owned.back().get()));
    }
  }
  // Takes them away.
  ThreadGroup Group(absl::Duration stall = absl::Seconds(120)) {
    return ThreadGroup(std::move(owned), {.timeouts = {.stall = stall}, .buckets = kSmallBuckets});
  }

  std::vector<std::unique_ptr<Model>> owned;
  std::vector<ScriptedDevice*> scripts;
};

const std::vector<float> kImages = {0, 0, 0, 0};
const std::vector<int64_t> kLabels = {1, 1, 3, 3};
const BatchView kBatch = {.images = kImages, .labels = kLabels};

TEST(ThreadGroup, SumsAreReadyWhileBackwardGoesOn) {
  ScriptedDevices devices(2);
  absl::Notification second_bucket_ready;
  for (ScriptedDevice* device : devices.scripts) {
    // Neither goes on before the caller has the second bucket.
    device->before = [&](uint64_t element) {
      if (element < 5 && !second_bucket_ready.WaitForNotificationWithTimeout(absl::Seconds(60))) {
        return absl::InternalError("nothing was ready");
      }
      return absl::OkStatus();
    };
  }
  ThreadGroup group = devices.Group();
  std::vector<uint64_t> ready;
  const absl::StatusOr<StepResult> result = group.Step(kBatch, [&](uint64_t from) {
    for (uint64_t i = from; i < kElements; ++i) EXPECT_EQ(group.model().push()[i], 2);
    ready.push_back(from);
    if (from <= 5 && !second_bucket_ready.HasBeenNotified()) second_bucket_ready.Notify();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 4u);
  EXPECT_EQ(result->loss, 2);
  EXPECT_EQ(ready.back(), 0u);
  EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
}

TEST(ThreadGroup, DevicesReadTheParametersOfTheFirstWhereverTheyAre) {
  ScriptedDevices devices(3);
  ThreadGroup group = devices.Group();
  std::vector<float> elsewhere(kElements, 7);
  group.model().UseParameters(absl::MakeSpan(elsewhere));
  ASSERT_TRUE(group.Step(kBatch, [](uint64_t) {}).ok());
  for (ScriptedDevice* device : devices.scripts) EXPECT_EQ(device->parameters().data(), elsewhere.data());
}

TEST(ThreadGroup, DeviceThatHangsIsNamedWithItsBucketAndEndsTheGroup) {
  for (size_t stuck : {0, 1}) {
    ScriptedDevices devices(2);
    absl::Notification released;
    devices.scripts[stuck]->before = [&](uint64_t element) {
      if (element == 4) released.WaitForNotification();
      return absl::OkStatus();
    };
    ThreadGroup group = devices.Group(/*stall=*/absl::Milliseconds(100));
    EXPECT_EQ(group.given_up(), absl::OkStatus());
    const absl::Status status = group.Step(kBatch).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("device " + std::to_string(stuck) + " has not come with bucket 3 of 5 (elements 3 to 5) for 50ms"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("device " + std::to_string(1 - stuck))));
    EXPECT_EQ(group.given_up(), status);
    EXPECT_EQ(group.Step(kBatch).status(), status);
    released.Notify();
  }
}

TEST(ThreadGroup, FirstStepMayComputeForLongerThanADeviceMayBeSilent) {
  ScriptedDevices devices(2);
  devices.scripts[1]->before = [&](uint64_t element) {
    const ThreadTime used;
    const absl::Time end = used.Now() + absl::Milliseconds(element == 4 ? 700 : 0);
    while (used.Now() < end) {
    }
    return absl::OkStatus();
  };
  ThreadGroup group = devices.Group(/*stall=*/absl::Seconds(1));
  EXPECT_EQ(group.Step(kBatch).status(), absl::OkStatus());
}

TEST(ThreadGroup, DeviceThatHangsAfterItsGradientIsNamed) {
  ScriptedDevices devices(2);
  absl::Notification released;
  devices.scripts[1]->after = [&] { released.WaitForNotification(); };
  ThreadGroup group = devices.Group(/*stall=*/absl::Milliseconds(100));
  const absl::Status status = group.Step(kBatch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 1 has not ended its step for 50ms"));
  released.Notify();
}

TEST(ThreadGroup, FailureOfADeviceLetsTheOthersGoAndTheNextStepWorks) {
  for (size_t failing : {0, 2}) {
    ScriptedDevices devices(3);
    bool fails = true;
    devices.scripts[failing]->before = [&](uint64_t element) {
      return element == 6 && fails ? absl::InternalError("LibTorch: broken") : absl::OkStatus();
    };
    // Would be a hang if the others waited for the one that failed.
    ThreadGroup group = devices.Group(/*stall=*/absl::InfiniteDuration());
    const absl::Status status = group.Step(kBatch).status();
    EXPECT_EQ(status, absl::InternalError("device " + std::to_string(failing) + ": LibTorch: broken"));
    EXPECT_EQ(group.given_up(), absl::OkStatus());
    fails = false;
    EXPECT_EQ(group.Step(kBatch).status(), absl::OkStatus());
  }
}

}  // namespace
}  // namespace slackline::worker::thread_group_test

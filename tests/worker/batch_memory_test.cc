// Batches in memory from which devices copy: all of them are present, and stay as long as somebody reads them. The host
// that pins the memory is a fake.
#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/images/test_data.h"
#include "tests/worker/played_batch_memory.h"
#include "tests/worker/scripted.h"
#include "worker/group/batch_part.h"

namespace slackline::worker::batch_memory_test {
namespace {

using testing::Each;
using testing::ElementsAre;

// Long enough for any machine.
constexpr absl::Duration kLong = absl::Seconds(60);

std::vector<uint32_t> Numbers(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// --- Memory -----------------------------------------------------------------------------------------------------

TEST(PinnedBatches, GrowToWhatIsNeededAndLetGoOfWhatWasThereFirst) {
  PlayedHost host;
  {
    const std::unique_ptr<images::Batch> batch = images::NewBatch(&host.memory());
    std::vector<size_t> bytes;
    for (const size_t floats : {100, 40, 100, 130, 0, 130}) {
      images::RemakeFloats(batch->images, floats);
      EXPECT_EQ(batch->images.size(), floats);
      bytes.push_back(host.bytes());
    }
    EXPECT_THAT(bytes, ElementsAre(400, 400, 400, 520, 520, 520));
    EXPECT_EQ(host.pins(), 2);
    EXPECT_TRUE(host.Pinned(batch->images));
    const images::Batch moved = std::move(*batch);
    EXPECT_TRUE(host.Pinned(moved.images));
  }
  EXPECT_EQ(host.blocks(), 0u);
}

TEST(PinnedBatches, WhereNoneIsPinnedTheProgramsMemoryServesAndItIsSaidOnce) {
  PlayedHost host;
  host.Refuse(true);
  std::vector<std::unique_ptr<images::Batch>> batches;
  for (int i = 0; i < 3; ++i) {
    images::RemakeFloats(batches.emplace_back(images::NewBatch(&host.memory()))->images, 100);
    std::fill(batches.back()->images.begin(), batches.back()->images.end(), 1.0f);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batches.back()->images.data()) % images::kBatchAlignment, 0u);
  }
  EXPECT_EQ(host.blocks(), 0u);
  EXPECT_EQ(host.refusals(), 1);
  host.Refuse(false);
  images::RemakeFloats(batches.front()->images, 200);
  EXPECT_TRUE(host.Pinned(batches.front()->images));
  host.Refuse(true);
  images::RemakeFloats(batches.front()->images, 300);
  EXPECT_EQ(host.blocks(), 0u);
  EXPECT_EQ(host.refusals(), 1);
}

TEST(BatchFloats, WithoutAGroupsMemoryBeginWithACacheLine) {
  for (const size_t floats : {1, 100, 100'000}) {
    images::Batch batch;
    images::RemakeFloats(batch.images, floats);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.images.data()) % images::kBatchAlignment, 0u);
  }
}

TEST(PartOf, IsWhereTheBatchIs) {
  PlayedHost host;
  const std::unique_ptr<images::Batch> batch = images::NewBatch(&host.memory());
  images::RemakeFloats(batch->images, 7 * 6);
  batch->labels = {0, 1, 2, 3, 4, 5, 6};
  const float* next = batch->images.data();
  for (size_t device = 0; device < 3; ++device) {
    const BatchView part = PartOf(ViewOf(*batch), device, 3);
    EXPECT_EQ(part.images.data(), next);
    EXPECT_EQ(part.images.size(), part.labels.size() * 6);
    EXPECT_TRUE(host.Pinned(part.images));
    next += part.images.size();
  }
  EXPECT_EQ(next, batch->images.data() + batch->images.size());
}

TEST(PartOf, HasAllViewsOfItsSamples) {
  PlayedHost host;
  const std::unique_ptr<images::Batch> batch = images::NewBatch(&host.memory());
  // Three views of four images of two pixels.
  images::RemakeFloats(batch->images, 3 * 4 * 2);
  for (size_t i = 0; i < batch->images.size(); ++i) batch->images[i] = static_cast<float>(i);
  batch->labels = {0, 1, 2, 3};
  batch->views = 3;
  const BatchView first = PartOf(ViewOf(*batch), 0, 3), last = PartOf(ViewOf(*batch), 2, 3);
  EXPECT_THAT(first.labels, ElementsAre(0, 1));
  EXPECT_THAT(last.labels, ElementsAre(3));
  EXPECT_EQ(last.view_stride, 8u);
  EXPECT_EQ(first.images.front(), 0);
  EXPECT_EQ(first.images.back(), 2 * 8 + 3) << "the second image's last view";
  EXPECT_THAT(last.images.subspan(0, 2), ElementsAre(6, 7));
  EXPECT_THAT(last.images.subspan(8, 2), ElementsAre(14, 15));
  EXPECT_EQ(last.images.size(), 2 * 8 + 2u);
  EXPECT_TRUE(PartOf(ViewOf(*batch), 4, 5).images.empty());
}

// --- Prefetching ------------------------------------------------------------------------------------------------

// Image i is 2 x 2 pixels of value i.
class Numbered final : public images::ImageSource {
 public:
  absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const override {
    std::fill(out.begin(), out.end(), static_cast<uint8_t>(index));
    return absl::OkStatus();
  }
};

constexpr uint32_t kImages = 120;

images::Dataset NumberedImages() {
  std::vector<uint32_t> labels = Numbers(0, kImages);
  for (uint32_t& label : labels) label %= 10;
  return images::Dataset::FromSource(std::make_shared<Numbered>(), {.channels = 1, .height = 2, .width = 2}, labels);
}

struct Way {
  uint32_t threads = 1;
  images::Augment augment = {};
};

class PrefetchingTest : public testing::TestWithParam<Way> {
 protected:
  static constexpr uint32_t kCapacity = 3;
  size_t views() const { return GetParam().augment.views; }

  const images::Dataset data_ = NumberedImages();
  PlayedHost host_;
};

TEST_P(PrefetchingTest, EveryBatchIsThereAndIsUsedAgain) {
  {
    images::Prefetcher prefetcher(data_, {}, kCapacity, GetParam().augment, 1, GetParam().threads);
    prefetcher.UseMemory(&host_.memory());
    const uint32_t batches_max = std::max(kCapacity, GetParam().threads) + GetParam().threads;
    for (uint32_t round = 0; round < 60; ++round) {
      prefetcher.Start(Numbers(0, 50), 8, round);
      for (uint32_t taken = 0; taken < 7; ++taken) {
        if (round % 3 == 1 && taken == 2) break;  // what is ready, or in the making, is forgotten
        absl::StatusOr<std::unique_ptr<images::Batch>> batch = prefetcher.Next(kLong);
        ASSERT_TRUE(batch.ok() && *batch != nullptr) << batch.status();
        ASSERT_EQ((*batch)->images.size(), (taken < 6 ? 8 : 2) * 4 * views());
        ASSERT_TRUE(host_.Pinned((*batch)->images)) << "batch " << taken << " of round " << round;
        prefetcher.Recycle(*std::move(batch));
      }
    }
    EXPECT_LE(host_.blocks(), batches_max);
    EXPECT_LE(host_.bytes(), batches_max * 8 * 4 * views() * sizeof(float));
    // The last batch of a range may have been the first in its memory, which then has grown.
    EXPECT_LE(host_.pins(), 2 * static_cast<int>(batches_max + GetParam().threads));
    const int pins = host_.pins();
    prefetcher.Start(Numbers(0, 50), 2);
    for (uint32_t taken = 0; taken < 25; ++taken) prefetcher.Recycle(prefetcher.Next(kLong).value());
    EXPECT_LE(host_.pins() - pins, static_cast<int>(batches_max)) << "smaller ones need no other memory";
  }
  EXPECT_EQ(host_.blocks(), 0u);
}

// The device reads it as late as it may.
TEST_P(PrefetchingTest, ABatchInUseStaysWhileOthersAreMade) {
  images::Prefetcher prefetcher(data_, {}, kCapacity, GetParam().augment, 1, GetParam().threads);
  prefetcher.UseMemory(&host_.memory());
  for (uint32_t round = 0; round < 30; ++round) {
    prefetcher.Start(Numbers(0, 50), 4 + round % 5, round);
    std::unique_ptr<images::Batch> in_use = prefetcher.Next(kLong).value();
    const std::vector<float> images(in_use->images.begin(), in_use->images.end());
    const std::vector<int64_t> labels = in_use->labels;
    const float* const memory = in_use->images.data();
    for (int others = 0; others < 4; ++others) {
      std::unique_ptr<images::Batch> other = prefetcher.Next(kLong).value();
      EXPECT_NE(other->images.data(), memory);
      prefetcher.Recycle(std::move(other));
    }
    prefetcher.Start(Numbers(50, 100), 16, round);  // larger ones, and all that was ready is forgotten
    prefetcher.Recycle(prefetcher.Next(kLong).value());
    EXPECT_TRUE(host_.Pinned(in_use->images));
    EXPECT_TRUE(std::equal(images.begin(), images.end(), in_use->images.begin(), in_use->images.end()));
    EXPECT_EQ(in_use->labels, labels);
    prefetcher.Recycle(std::move(in_use));
  }
}

TEST_P(PrefetchingTest, PixelsAreThoseOfOtherMemory) {
  images::Prefetcher pinned(data_, {}, kCapacity, GetParam().augment, 1, GetParam().threads);
  images::Prefetcher plain(data_, {}, kCapacity, GetParam().augment, 1, GetParam().threads);
  pinned.UseMemory(&host_.memory());
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (images::Prefetcher* prefetcher : {&pinned, &plain}) prefetcher->Start(Numbers(0, 50), 8, epoch);
    for (uint32_t taken = 0; taken < 7; ++taken) {
      std::unique_ptr<images::Batch> one = pinned.Next(kLong).value(), other = plain.Next(kLong).value();
      EXPECT_TRUE(std::equal(one->images.begin(), one->images.end(), other->images.begin(), other->images.end()));
      EXPECT_EQ(one->labels, other->labels);
      EXPECT_FALSE(host_.Pinned(other->images));
      pinned.Recycle(std::move(one));
      plain.Recycle(std::move(other));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, PrefetchingTest,
                         testing::Values(Way{}, Way{.threads = 4}, Way{.threads = 2, .augment = {.mixup_alpha = 1}},
                                         Way{.threads = 2, .augment = {.flip_horizontal = true, .views = 2}}));

// --- Training and evaluating ------------------------------------------------------------------------------------

// A group whose device reads each batch when the host has done whatever it does beside it.
class LateGroup final : public FixedGroup {
 public:
  explicit LateGroup(PlayedHost& host) : host_(host) {}

  images::BatchMemory* batch_memory() override { return &host_.memory(); }
  absl::Status given_up() const override { return failure.ok() || !gives_up ? absl::OkStatus() : failure; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    See(batch);
    last_ = batch;
    last_pixels_.assign(batch.images.begin(), batch.images.end());
    auto result = FixedGroup::Step(batch, ready);
    std::this_thread::yield();
    EXPECT_TRUE(IsAsItWas());
    return result;
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override {
    See(batch);
    return FixedGroup::Evaluate(batch, predictions);
  }
  absl::Status Remember(const BatchView& batch) override {
    See(batch);
    return FixedGroup::Remember(batch);
  }
  // The batch of the last step.
  bool IsAsItWas() const {
    return host_.Pinned(last_.images) &&
           std::equal(last_pixels_.begin(), last_pixels_.end(), last_.images.begin(), last_.images.end());
  }

  bool gives_up = false;
  std::vector<bool> seen_pinned;

 private:
  void See(const BatchView& batch) { seen_pinned.push_back(host_.Pinned(batch.images)); }

  PlayedHost& host_;
  BatchView last_;
  std::vector<float> last_pixels_;
};

const EvaluationWork kEvaluation = {.epoch = 1, .final = false, .run_folder = ""};

class GroupMemoryTest : public testing::Test {
 protected:
  GroupMemoryTest() { options_.batch_size = 8; }

  Evaluator::Options EvaluatorOptions(uint32_t threads) const {
    return {.normalisation = {},
            .batch_size = 16,
            .class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
            .data_threads = threads,
            .neighbours = &data_};
  }
  std::unique_ptr<Trainer> MakeTrainer() {
    return std::make_unique<Trainer>(options_,
                                     Trainer::Parts{.time = time_,
                                                    .link = link_,
                                                    .group = group_,
                                                    .train = data_,
                                                    .prefetcher = prefetcher_,
                                                    .evaluator = evaluator_,
                                                    .metrics = trainer_metrics_,
                                                    .connect = [this](const ClientOptions& options, const ShardMap&) {
                                                      return absl::StatusOr<std::unique_ptr<Client>>(
                                                          std::make_unique<ScriptedClient>(options, wire_));
                                                    }});
  }
  absl::Status Train(std::deque<absl::StatusOr<Work>> work) {
    link_.work = std::move(work);
    return MakeTrainer()->Run();
  }
  static RangeWork Range(uint64_t begin, uint64_t end) {
    return {.range = RangeId(begin + 1), .epoch = 0, .begin = begin, .end = end};
  }

  PlayedHost host_;  // all others are in its memory
  const images::Dataset data_ = NumberedImages();
  ManualTime time_;
  Trainer::Options options_;
  ScriptedLink link_;
  Wire wire_;
  LateGroup group_{host_};
  slackline::Metrics metrics_;
  TrainerMetrics trainer_metrics_{metrics_};
  images::Prefetcher prefetcher_{data_, {}, 2, {}, 1, 2};
  Evaluator evaluator_{data_, EvaluatorOptions(1)};
};

TEST_F(GroupMemoryTest, StepsAndEvaluationsReadNothingElse) {
  EXPECT_EQ(Train({Range(0, 30), kEvaluation, Range(30, 100)}), absl::OkStatus());
  EXPECT_EQ(wire_.pushes.size(), 4u + 9u);
  // 120 images that are remembered, as many that are measured, by 16.
  EXPECT_EQ(group_.seen_pinned.size(), 4u + 9u + 2u * 8u);
  EXPECT_THAT(group_.seen_pinned, Each(true));
  EXPECT_EQ(group_.labels.size(), 100u);
}

TEST_F(GroupMemoryTest, AStepThatFailsLeavesItsBatchToTheNext) {
  group_.failure = absl::FailedPreconditionError("LibTorch: out of memory");
  EXPECT_EQ(Train({Range(0, 30), Range(0, 30)}), absl::OkStatus());
  EXPECT_EQ(link_.joins, 3);
  EXPECT_TRUE(wire_.pushes.empty());
  group_.failure = absl::OkStatus();
  const int pins = host_.pins();
  EXPECT_EQ(Train({Range(0, 100)}), absl::OkStatus());
  EXPECT_THAT(group_.seen_pinned, Each(true));
  EXPECT_LE(host_.pins() - pins, 4);
}

TEST_F(GroupMemoryTest, WhatADeviceThatHangsMayReadIsNotWrittenAgain) {
  group_.failure = absl::DeadlineExceededError("nothing was heard of cuda:0");
  group_.gives_up = true;
  link_.work = {Range(0, 100)};
  const auto trainer = MakeTrainer();
  EXPECT_EQ(trainer->Run().code(), absl::StatusCode::kDeadlineExceeded);
  prefetcher_.Start(Numbers(50, 120), 16);
  for (int i = 0; i < 4; ++i) prefetcher_.Recycle(prefetcher_.Next(kLong).value());
  EXPECT_TRUE(group_.IsAsItWas());
}

TEST_F(GroupMemoryTest, EvaluationsWithThreadsReadNothingElseAndKeepOneBatch) {
  for (const uint32_t threads : {1u, 3u}) {
    Evaluator evaluator(data_, EvaluatorOptions(threads));
    evaluator.UseMemory(&host_.memory());
    group_.seen_pinned.clear();
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(evaluator.Evaluate(group_, kEvaluation, [] { return absl::OkStatus(); }).ok());
    }
    EXPECT_EQ(group_.seen_pinned.size(), 3u * 2u * 8u);
    EXPECT_THAT(group_.seen_pinned, Each(true));
    EXPECT_EQ(host_.blocks(), 1u);
    EXPECT_LE(host_.bytes(), 16u * 4 * sizeof(float));
  }
}

TEST_F(GroupMemoryTest, WithoutPinnedMemoryBatchesAreTheSame) {
  host_.Refuse(true);
  prefetcher_.UseMemory(&host_.memory());
  prefetcher_.Start(Numbers(0, 50), 8);
  for (int i = 0; i < 7; ++i) {
    std::unique_ptr<images::Batch> batch = prefetcher_.Next(kLong).value();
    EXPECT_FLOAT_EQ(batch->images.front(), static_cast<float>(8 * i) / 255);
    prefetcher_.Recycle(std::move(batch));
  }
  EXPECT_EQ(host_.refusals(), 1);
  EXPECT_EQ(host_.blocks(), 0u);
}

}  // namespace
}  // namespace slackline::worker::batch_memory_test

#include "scheduler/work/data_ranges.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slackline::scheduler::data_ranges_test {
namespace {

DataRanges::Config Small() {
  DataRanges::Config config;
  config.samples_per_epoch = 1000;
  config.epochs = 2;
  config.batch_size = 10;
  return config;
}

Holder Worker(uint32_t number, uint64_t incarnation = 0) {
  return {WorkerId(number), Incarnation(incarnation == 0 ? number : incarnation)};
}

// Of a worker that trains alone.
std::optional<DataRange> Lease(DataRanges& ranges, const Holder& holder, double samples_per_second,
                               uint32_t batch_size = 0) {
  return ranges.Lease(holder, {.samples_per_second = samples_per_second, .batch_size = batch_size});
}

// Takes ranges and finishes them, until it has one of this epoch.
DataRange TrainUpTo(DataRanges& ranges, const Holder& holder, uint32_t epoch) {
  while (true) {
    const DataRange range = *Lease(ranges, holder, 0);
    if (range.epoch == epoch) return range;
    EXPECT_TRUE(ranges.Done(holder, range.id).ok());
  }
}

TEST(DataRanges, FirstRangeIsTenBatchesWhateverTheSpeed) {
  DataRanges ranges(Small());
  const auto range = Lease(ranges, Worker(1), 1e6);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, 0u);
  EXPECT_EQ(range->size(), 100u);
}

TEST(DataRanges, LaterRangesLastTwoSecondsInWholeBatches) {
  DataRanges ranges(Small());
  ASSERT_TRUE(ranges.Done(Worker(1), Lease(ranges, Worker(1), 0)->id).ok());
  EXPECT_EQ(Lease(ranges, Worker(1), 127)->size(), 250u);
}

TEST(DataRanges, SizesAreWholeBatchesOfTheWorker) {
  DataRanges ranges(Small());
  EXPECT_EQ(Lease(ranges, Worker(1), 0, /*batch_size=*/7)->size(), 70u);
  ASSERT_TRUE(ranges.Done(Worker(1), RangeId(1)).ok());
  EXPECT_EQ(Lease(ranges, Worker(1), 127, /*batch_size=*/30)->size(), 240u);
}

TEST(DataRanges, SlowWorkerGetsAtLeastABatch) {
  DataRanges ranges(Small());
  ASSERT_TRUE(ranges.Done(Worker(1), Lease(ranges, Worker(1), 0)->id).ok());
  EXPECT_EQ(Lease(ranges, Worker(1), 0.001)->size(), 10u);
}

TEST(DataRanges, SpeedThatIsNoNumberCountsAsUnknown) {
  DataRanges ranges(Small());
  ASSERT_TRUE(ranges.Done(Worker(1), Lease(ranges, Worker(1), 0)->id).ok());
  EXPECT_EQ(Lease(ranges, Worker(1), std::nan(""))->size(), 100u);
}

TEST(DataRanges, HolderAskingAgainGetsTheSameRange) {
  DataRanges ranges(Small());
  const auto range = Lease(ranges, Worker(1), 0);
  EXPECT_EQ(Lease(ranges, Worker(1), 50), range);
  EXPECT_EQ(ranges.samples_leased(), 100u);
}

TEST(DataRanges, NextEpochOpensWhileTheLastRangesOfOneAreStillOut) {
  DataRanges ranges(Small());
  EXPECT_EQ(Lease(ranges, Worker(1), 0)->epoch, 0u);
  EXPECT_EQ(TrainUpTo(ranges, Worker(2), 1).begin, 0u);
  EXPECT_EQ(ranges.epochs_done(), 0u);
}

TEST(DataRanges, EpochsCompleteInOrder) {
  DataRanges::Config config = Small();
  config.epochs = 3;
  DataRanges ranges(config);
  const auto first = Lease(ranges, Worker(1), 0);
  TrainUpTo(ranges, Worker(2), 2);
  EXPECT_EQ(ranges.epochs_done(), 0u);
  EXPECT_EQ(*ranges.Done(Worker(1), first->id), 2u);
  EXPECT_EQ(ranges.epochs_done(), 2u);
}

TEST(DataRanges, RepeatedDoneChangesNothing) {
  DataRanges ranges(Small());
  const auto range = Lease(ranges, Worker(1), 0);
  ASSERT_TRUE(ranges.Done(Worker(1), range->id).ok());
  EXPECT_EQ(*ranges.Done(Worker(1), range->id), 0u);
  EXPECT_EQ(ranges.samples_done(), 100u);
}

TEST(DataRanges, DoneOfAnothersRangeIsRefused) {
  DataRanges ranges(Small());
  const auto range = Lease(ranges, Worker(1), 0);
  EXPECT_EQ(ranges.Done(Worker(2), range->id).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ranges.Done(Worker(1), RangeId(99)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ranges.samples_done(), 0u);
}

TEST(DataRanges, ReleasedRangeIsGivenOutBeforeNewSamplesAndCounted) {
  DataRanges ranges(Small());
  const auto lost = Lease(ranges, Worker(1), 0);
  ASSERT_TRUE(Lease(ranges, Worker(2), 0));
  EXPECT_EQ(ranges.Release(Worker(1)), 100u);
  EXPECT_EQ(ranges.samples_given_twice(), 100u);
  const auto again = Lease(ranges, Worker(3), 0);
  EXPECT_EQ(again->begin, lost->begin);
  EXPECT_EQ(again->end, lost->end);
  EXPECT_NE(again->id, lost->id);
  EXPECT_EQ(ranges.Release(Worker(1)), 0u);
}

TEST(DataRanges, EveryEpochIsCutFinerTowardsItsEnd) {
  DataRanges::Config config = Small();
  config.first_batches = 1;
  DataRanges ranges(config);
  ASSERT_TRUE(ranges.Done(Worker(1), Lease(ranges, Worker(1), 0)->id).ok());
  std::vector<std::vector<uint64_t>> sizes(config.epochs);
  while (auto range = Lease(ranges, Worker(1), 1e6)) {
    std::vector<uint64_t>& of_epoch = sizes[range->epoch];
    EXPECT_LE(range->size(), of_epoch.empty() ? config.samples_per_epoch : of_epoch.back());
    of_epoch.push_back(range->size());
    ASSERT_TRUE(ranges.Done(Worker(1), range->id).ok());
  }
  EXPECT_EQ(sizes[0].front(), 490u);
  EXPECT_EQ(sizes[1].front(), 500u);
  for (const std::vector<uint64_t>& of_epoch : sizes) EXPECT_EQ(of_epoch.back(), 10u);
  EXPECT_TRUE(ranges.Finished());
}

TEST(DataRanges, RangesShrinkTowardsWhatWorkersAreToAskFor) {
  DataRanges ranges(Small());
  EXPECT_EQ(ranges.Lease(Worker(1), {.samples_left = 90})->size(), 40u);
  EXPECT_EQ(ranges.Lease(Worker(2), {.workers = 2, .samples_left = 50})->size(), 10u);
  EXPECT_EQ(ranges.Lease(Worker(3), {.samples_left = 0})->size(), 10u) << "a batch at least";
}

TEST(DataRanges, OfARangeThatIsLeftOnlyTheRestIsGivenBack) {
  DataRanges ranges(Small());
  const DataRange range = *Lease(ranges, Worker(1), 0);
  EXPECT_EQ(ranges.DoneTo(Worker(1), range.id, 101).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ranges.DoneTo(Worker(1), range.id, 30), 0u);
  EXPECT_EQ(ranges.samples_done(), 30u);
  // Said again, or of a range that it does not hold.
  EXPECT_EQ(*ranges.DoneTo(Worker(1), range.id, 30), 0u);
  EXPECT_EQ(*ranges.DoneTo(Worker(2), range.id, 50), 0u);
  EXPECT_EQ(*ranges.DoneTo(Worker(1), RangeId(9), 50), 0u);
  EXPECT_EQ(ranges.samples_done(), 30u);
  EXPECT_EQ(ranges.samples_leased(), 70u);
  state::Ranges saved;
  ranges.Save(saved);
  DataRanges again(Small());
  again.Restore(saved);
  for (DataRanges* one : {&ranges, &again}) {
    EXPECT_EQ(one->Release(Worker(1)), 70u);
    EXPECT_EQ(one->samples_given_twice(), 70u);
    const DataRange rest = *Lease(*one, Worker(2), 0);
    EXPECT_EQ(rest.begin, 30u);
    EXPECT_EQ(rest.end, 100u);
  }
}

TEST(DataRanges, RangeThatIsLeftAtItsEndIsDone) {
  DataRanges::Config config = Small();
  config.samples_per_epoch = 100;
  DataRanges ranges(config);
  const DataRange range = *Lease(ranges, Worker(1), 0);
  ASSERT_EQ(range.size(), 50u);
  const uint64_t left = 60;
  uint64_t given = 0;
  EXPECT_EQ(*ranges.DoneTo(Worker(1), range.id, 40), 0u);
  ASSERT_EQ(ranges.Release(Worker(1)), 10u);
  while (const std::optional<DataRange> rest = Lease(ranges, Worker(2), 0)) {
    if (rest->epoch > 0) break;
    given += rest->size();
    EXPECT_EQ(*ranges.DoneTo(Worker(2), rest->id, rest->end), given == left ? 1u : 0u);
  }
  EXPECT_EQ(given, left);
  EXPECT_EQ(ranges.epochs_done(), 1u);
}

// Virtual time: workers of the given speeds train to the end. Returns when each stopped.
std::vector<double> TrainToTheEnd(DataRanges& ranges, const std::vector<double>& speeds) {
  std::vector<double> free_at(speeds.size(), 0);
  std::vector<std::optional<DataRange>> held(speeds.size());
  std::vector<bool> stopped(speeds.size(), false);
  while (true) {
    size_t next = speeds.size();
    for (size_t i = 0; i < speeds.size(); ++i) {
      if (!stopped[i] && (next == speeds.size() || free_at[i] < free_at[next])) next = i;
    }
    if (next == speeds.size()) return free_at;
    const Holder holder = Worker(static_cast<uint32_t>(next) + 1);
    if (held[next]) {
      EXPECT_TRUE(ranges.Done(holder, held[next]->id).ok());
    }
    const double told = free_at[next] > 0 ? speeds[next] : 0;
    held[next] = ranges.Lease(holder, {.samples_per_second = told, .workers = speeds.size()});
    if (held[next]) {
      free_at[next] += static_cast<double>(held[next]->size()) / speeds[next];
    } else {
      stopped[next] = true;
    }
  }
}

TEST(DataRanges, WorkersOfUnequalSpeedEndTogether) {
  DataRanges::Config config;
  config.samples_per_epoch = 60000;
  config.epochs = 2;
  config.batch_size = 64;
  DataRanges ranges(config);
  const std::vector<double> ends = TrainToTheEnd(ranges, {6000, 6000, 500});
  EXPECT_TRUE(ranges.Finished());
  const double ideal = 120000.0 / 12500;
  for (double end : ends) {
    EXPECT_GT(end, ideal - 1.0);
    EXPECT_LT(end, ideal + 1.5);
  }
}

// 4,000 images, 8 workers and 3 epochs: ranges of 2 s of work would be half an epoch.
TEST(DataRanges, EqualWorkersEndWithinABatchOfEachOther) {
  DataRanges::Config config;
  config.samples_per_epoch = 4000;
  config.epochs = 3;
  config.batch_size = 32;
  DataRanges ranges(config);
  const double speed = 1000;
  const std::vector<double> ends = TrainToTheEnd(ranges, std::vector<double>(8, speed));
  EXPECT_TRUE(ranges.Finished());
  const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
  EXPECT_LE(*last - *first, config.batch_size / speed + 1e-9);
}

TEST(DataRanges, EpochEndsWithinABatchOfEachWorkerOfItsSamples) {
  DataRanges::Config config;
  config.samples_per_epoch = 4000;
  config.epochs = 3;
  config.batch_size = 32;
  DataRanges ranges(config);
  constexpr uint32_t kWorkers = 8;
  // All have equal batches; they finish in turns.
  std::map<uint32_t, DataRange> held;
  std::map<uint32_t, uint64_t> left;
  uint64_t trained = 0;
  for (uint32_t next = 0; !ranges.Finished(); next = (next + 1) % kWorkers) {
    if (!held.contains(next)) {
      const auto range = ranges.Lease(Worker(next + 1), {.samples_per_second = 1000, .workers = kWorkers});
      if (!range) continue;
      held[next] = *range;
      left[next] = range->size();
    }
    const uint64_t step = std::min<uint64_t>(left[next], config.batch_size);
    trained += step;
    if ((left[next] -= step) > 0) continue;
    if (*ranges.Done(Worker(next + 1), held[next].id) > 0) {
      EXPECT_LE(trained, uint64_t{ranges.epochs_done()} * 4000 + (kWorkers - 1) * 32)
          << "epoch " << ranges.epochs_done();
    }
    held.erase(next);
  }
}

TEST(DataRanges, RangeHasAtMostHalfOfAnEqualPartOfWhatIsLeft) {
  for (const size_t workers : {1, 2, 8, 13}) {
    DataRanges::Config config = Small();
    config.samples_per_epoch = 10'000;
    DataRanges ranges(config);
    uint64_t left = 0;
    uint32_t epoch = config.epochs;
    for (uint32_t turn = 0; !ranges.Finished(); ++turn) {
      const Holder holder = Worker(1 + turn % static_cast<uint32_t>(workers));
      // One is much faster than the others.
      const auto range = ranges.Lease(holder, {.samples_per_second = holder.worker.value() == 1 ? 1e5 : 1e3,
                                               .batch_size = 1 + 10 * holder.worker.value(),
                                               .workers = workers});
      ASSERT_TRUE(range);
      if (range->epoch != epoch) left = config.samples_per_epoch;
      epoch = range->epoch;
      EXPECT_LE(range->size(), std::max<uint64_t>(1 + 10 * holder.worker.value(), left / (2 * workers)));
      left -= range->size();
      ASSERT_TRUE(ranges.Done(holder, range->id).ok());
    }
  }
}

// A random history of leases, ends and deaths.
void CheckRandomHistory(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  DataRanges::Config config;
  config.samples_per_epoch = 1 + random() % 500;
  config.epochs = 1 + random() % 4;
  config.batch_size = 1 + random() % 20;
  config.first_batches = 1 + random() % 5;
  DataRanges ranges(config);
  std::vector<std::vector<int>> done(config.epochs, std::vector<int>(config.samples_per_epoch, 0));
  std::map<Holder, DataRange> held;
  uint64_t incarnation = 100;
  std::vector<Holder> workers = {Worker(1), Worker(2), Worker(3)};
  uint32_t completed = 0;
  for (int step = 0; !ranges.Finished(); ++step) {
    ASSERT_LT(step, 100000) << "does not end";
    Holder& worker = workers[random() % workers.size()];
    if (auto own = held.find(worker); own != held.end()) {
      const DataRange range = own->second;
      held.erase(own);
      if (random() % 5 == 0) {
        EXPECT_EQ(ranges.Release(worker), range.size());
        worker.incarnation = Incarnation(++incarnation);
        continue;
      }
      const auto result = ranges.Done(worker, range.id);
      ASSERT_TRUE(result.ok()) << result.status();
      completed += *result;
      for (uint64_t i = range.begin; i < range.end; ++i) ++done[range.epoch][i];
    } else if (const auto range = Lease(ranges, worker, static_cast<double>(random() % 100))) {
      ASSERT_LT(range->begin, range->end);
      ASSERT_LE(range->end, config.samples_per_epoch);
      held[worker] = *range;
    }
    uint64_t leased = 0;
    for (const auto& [holder, range] : held) leased += range.size();
    ASSERT_EQ(ranges.samples_leased(), leased);
  }
  EXPECT_EQ(completed, config.epochs);
  EXPECT_EQ(ranges.samples_done(), ranges.samples_total());
  for (const auto& epoch : done) {
    for (int times : epoch) ASSERT_EQ(times, 1);
  }
}

TEST(DataRanges, EverySampleIsDoneOnceInRandomHistories) {
  for (uint64_t seed = 1; seed <= 500; ++seed) CheckRandomHistory(seed);
}

}  // namespace
}  // namespace slackline::scheduler::data_ranges_test

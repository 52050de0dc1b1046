#include "scheduler/work/stream_parts.h"

#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "scheduler/work/tasks.h"

namespace slackline::scheduler::stream_parts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Holder kAlice = {WorkerId(1), Incarnation(1)};
const Holder kBob = {WorkerId(2), Incarnation(2)};

wire::Stream Stream(uint32_t parts, uint32_t passes = 1) {
  wire::Stream stream;
  stream.set_parts(parts);
  stream.set_passes(passes);
  stream.set_fingerprint(7);
  return stream;
}

// Part and position of each lease.
using Places = std::vector<std::pair<uint32_t, uint64_t>>;
Places PlacesOf(const std::vector<wire::PartLease>& leases) {
  Places places;
  for (const wire::PartLease& lease : leases) places.emplace_back(lease.part(), lease.records());
  return places;
}

// Positions, as lease, number of records and whether the part ends there.
StreamParts::Positions At(const std::vector<std::tuple<uint64_t, uint64_t, bool>>& all) {
  StreamParts::Positions positions;
  for (const auto& [lease, records, ended] : all) {
    wire::PartPosition& one = *positions.Add();
    one.set_lease(lease);
    one.set_records(records);
    one.set_ended(ended);
  }
  return positions;
}

wire::FencedWorker Fenced(const Holder& holder, uint32_t shards, const StreamParts::Positions& positions) {
  wire::FencedWorker worker;
  worker.set_worker(holder.worker.value());
  worker.set_incarnation(holder.incarnation.value());
  worker.set_shards(shards);
  *worker.mutable_parts() = positions;
  return worker;
}

TEST(StreamParts, PartsGoOutInTheirOrderAndAskingAgainGivesTheSame) {
  StreamParts parts(Stream(3));
  EXPECT_EQ(PlacesOf(parts.Lease(kAlice, 2)), (Places{{0, 0}, {1, 0}}));
  EXPECT_EQ(PlacesOf(parts.Lease(kAlice, 2)), (Places{{0, 0}, {1, 0}}));
  EXPECT_EQ(PlacesOf(parts.Lease(kBob, 2)), (Places{{2, 0}}));
  EXPECT_FALSE(parts.HasFree());
  EXPECT_FALSE(parts.Finished());
}

TEST(StreamParts, PartThatEndedIsDoneAndTheNextPassOpensWhenAllAreGivenOut) {
  StreamParts parts(Stream(1, 2));
  const uint64_t first = parts.Lease(kAlice, 1)[0].lease();
  const std::vector<wire::PartLease> second = parts.Lease(kBob, 1);
  EXPECT_EQ(second[0].pass(), 1);
  parts.Reached(kAlice, At({{first, 5, true}}));
  EXPECT_THAT(parts.Lease(kAlice, 1), IsEmpty());
  EXPECT_FALSE(parts.Finished());
  parts.Reached(kBob, At({{second[0].lease(), 5, true}}));
  EXPECT_TRUE(parts.Finished());
}

TEST(StreamParts, WithoutALimitThereIsAlwaysAnotherPass) {
  StreamParts parts(Stream(1, 0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(parts.Lease(kAlice, 1)[0].pass(), 0);
  EXPECT_EQ(parts.Lease(kBob, 3).size(), 3);
  EXPECT_TRUE(parts.HasFree());
}

TEST(StreamParts, OnlyTheHolderMovesAPositionAndOnlyForwards) {
  StreamParts parts(Stream(1));
  const uint64_t lease = parts.Lease(kAlice, 1)[0].lease();
  parts.Reached(kAlice, At({{lease, 8, false}}));
  parts.Reached(kAlice, At({{lease, 6, false}}));
  parts.Reached(kBob, At({{lease, 9, true}, {lease + 1, 9, true}}));
  EXPECT_EQ(PlacesOf(parts.Lease(kAlice, 1)), (Places{{0, 8}}));
}

TEST(StreamParts, PartOfAFencedWorkerGoesOnWhereAllShardsHaveAnswered) {
  StreamParts parts(Stream(1));
  const uint64_t lease = parts.Lease(kAlice, 1)[0].lease();
  parts.Reached(kAlice, At({{lease, 8, false}}));
  for (int repeated = 0; repeated < 2; ++repeated) {
    parts.Fenced(ServerId(1), Fenced(kAlice, 2, At({{lease, 24, false}})));
    parts.Fenced(ServerId(2), Fenced(kAlice, 1, At({{lease, 16, false}})));
  }
  parts.Release(kAlice, 3);
  EXPECT_EQ(PlacesOf(parts.Lease(kBob, 1)), (Places{{0, 16}}));
}

TEST(StreamParts, ShardThatKnowsNoPositionLeavesTheReportedOne) {
  StreamParts parts(Stream(1));
  const uint64_t lease = parts.Lease(kAlice, 1)[0].lease();
  parts.Reached(kAlice, At({{lease, 8, false}}));
  parts.Fenced(ServerId(1), Fenced(kAlice, 2, At({{lease, 24, false}})));
  parts.Fenced(ServerId(2), Fenced(kAlice, 1, {}));
  parts.Release(kAlice, 3);
  EXPECT_EQ(PlacesOf(parts.Lease(kBob, 1)), (Places{{0, 8}}));
}

TEST(StreamParts, ServersThatSpeakOfAnEarlierLifeChangeNothing) {
  StreamParts parts(Stream(1));
  const Holder before = {kAlice.worker, Incarnation(9)};
  const uint64_t lease = parts.Lease(kAlice, 1)[0].lease();
  parts.Fenced(ServerId(1), Fenced(before, 1, At({{lease, 24, false}})));
  parts.Release(before, 1);
  EXPECT_EQ(PlacesOf(parts.Lease(kAlice, 1)), (Places{{0, 0}}));
}

TEST(StreamParts, SavedStateGoesOn) {
  StreamParts parts(Stream(3));
  const std::vector<wire::PartLease> leases = parts.Lease(kAlice, 2);
  parts.Reached(kAlice, At({{leases[0].lease(), 4, true}, {leases[1].lease(), 8, false}}));
  state::Stream state;
  parts.Save(state);
  StreamParts restored(state.stream());
  restored.Restore(state);
  EXPECT_THAT(restored.Holders(), ElementsAre(kAlice));
  EXPECT_EQ(PlacesOf(restored.Lease(kAlice, 1)), (Places{{1, 8}}));
  const std::vector<wire::PartLease> others = restored.Lease(kBob, 9);
  EXPECT_EQ(PlacesOf(others), (Places{{2, 0}}));
  // The scheduler may have given out more numbers since it saved.
  EXPECT_GT(others[0].lease(), leases[1].lease() + 1000);
}

TEST(StreamParts, OtherStreamsAreRefused) {
  const StreamParts parts(Stream(3));
  EXPECT_TRUE(parts.CheckSame(Stream(3)).ok());
  EXPECT_THAT(parts.CheckSame(Stream(4)).message(), HasSubstr("a number of parts of 3, this worker's has 4"));
  EXPECT_THAT(parts.CheckSame(Stream(3, 2)).message(), HasSubstr("passes 1, this worker's has 2"));
  wire::Stream other = Stream(3);
  other.set_fingerprint(8);
  EXPECT_THAT(parts.CheckSame(other).message(), HasSubstr("0000000000000007, this worker's has 0000000000000008"));
  EXPECT_THAT(StreamParts::Check(Stream(0)).message(), HasSubstr("0 parts; allowed are 1 to 1000000"));
}

// --- Beside the ranges ------------------------------------------------------------------------------------------

Work Ask(Tasks& tasks, const Holder& holder, bool live = true) { return tasks.Next({.holder = holder, .live = live}); }

std::vector<wire::PartLease> Lease(Tasks& tasks, const Holder& holder, const StreamParts::Positions& reached = {}) {
  wire::LeasePartsRequest request;
  *request.mutable_stream() = Stream(1);
  request.set_wanted(1);
  *request.mutable_reached() = reached;
  auto leases = tasks.LeaseParts(holder, request);
  EXPECT_TRUE(leases.ok()) << leases.status();
  return *leases;
}

TEST(TasksOfAStream, WorkerWithoutAPartStandsByUntilOneIsFree) {
  Tasks tasks({.ranges = {.samples_per_epoch = 1000}});
  ASSERT_TRUE(std::holds_alternative<DataRange>(Ask(tasks, kAlice)));
  ASSERT_EQ(Lease(tasks, kAlice).size(), 1);
  EXPECT_TRUE(std::holds_alternative<StandbyWork>(Ask(tasks, kBob)));
  EXPECT_TRUE(std::holds_alternative<StandbyWork>(Ask(tasks, kBob, /*live=*/false)));
  tasks.Gone(kAlice);
  tasks.Fenced(kAlice, 1);
  EXPECT_TRUE(std::holds_alternative<RegisterAgainWork>(Ask(tasks, kBob, /*live=*/false)));
  EXPECT_TRUE(std::holds_alternative<DataRange>(Ask(tasks, kBob)));
}

TEST(TasksOfAStream, JobEndsWithItsStream) {
  Tasks tasks({.ranges = {.samples_per_epoch = 1000}});
  const auto range = std::get<DataRange>(Ask(tasks, kAlice));
  const uint64_t lease = Lease(tasks, kAlice)[0].lease();
  EXPECT_THAT(Lease(tasks, kAlice, At({{lease, 5, true}})), IsEmpty());
  EXPECT_TRUE(tasks.StreamEnded());
  ASSERT_TRUE(tasks.FinishRange(kAlice, range.id).ok());
  const Work last = Ask(tasks, kAlice);
  ASSERT_TRUE(std::holds_alternative<EvaluationWork>(last));
  EXPECT_TRUE(std::get<EvaluationWork>(last).final);
}

TEST(TasksOfAStream, ResumedRunReadsOnWithOtherWorkers) {
  Tasks tasks({.ranges = {.samples_per_epoch = 1000}});
  Ask(tasks, kAlice);
  const uint64_t lease = Lease(tasks, kAlice)[0].lease();
  tasks.ReachedParts(kAlice, At({{lease, 5, false}}));
  state::Tasks state;
  tasks.Save(state);
  Tasks resumed({.ranges = {.samples_per_epoch = 1000}});
  resumed.GoOnFrom(state);
  EXPECT_EQ(PlacesOf(Lease(resumed, kBob)), (Places{{0, 5}}));
}

}  // namespace
}  // namespace slackline::scheduler::stream_parts_test

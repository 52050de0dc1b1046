// The cores under random histories. A history is one small job, run from one seed: three shards and three or four
// workers, from their registration until each has made ten steps, with up to six faults in the first four virtual
// seconds. It has about 700 events (messages, ticks, heartbeats); every action that a shard's engine gives is checked.
//
// A failure prints its seed, and `cluster_sim_test --seed=N` replays it. `--histories=N` sets how many there are, from
// seed 1 on, or from another: `--seed=1000001 --histories=1000000`.
#include "tests/sim/cluster_sim.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/seeds.h"

namespace slackline::sim::cluster_sim_test {
namespace {

Seeds seeds(10000);

Options OptionsOf(uint64_t seed) {
  constexpr ps::Mode kModes[] = {ps::Mode::kSsp, ps::Mode::kBsp, ps::Mode::kAsync, ps::Mode::kSoftsync,
                                 ps::Mode::kQuorum};
  constexpr double kQuorums[] = {0.5, 0.75, 1};
  constexpr absl::Duration kDeadlines[] = {absl::ZeroDuration(), absl::Milliseconds(40), absl::Milliseconds(400)};
  Options options;
  options.seed = seed;
  options.mode = kModes[seed % 5];
  const uint64_t variant = seed / 5;
  options.staleness_max = variant % 4;
  options.softsync_n = 1 + variant % 2;
  options.quorum = kQuorums[variant % 3];
  options.quorum_deadline = kDeadlines[variant / 3 % 3];
  options.grace = variant / 9 % 2 == 1;
  // With three a group of softsync, or those who are missing, would hardly ever be some.
  if (options.mode == ps::Mode::kSoftsync || options.mode == ps::Mode::kQuorum) options.workers = 4;
  return options;
}

TEST(ClusterSim, InvariantsHoldInEveryHistory) {
  Outcome sum;
  uint64_t seed = seeds.first();
  for (; seeds.Has(seed); ++seed) {
    const Outcome outcome = Simulate(OptionsOf(seed));
    ASSERT_EQ(outcome.violation, "");
    sum.events += outcome.events;
    sum.applied += outcome.applied;
    sum.discarded += outcome.discarded;
    sum.late += outcome.late;
    sum.overdue += outcome.overdue;
    sum.graced += outcome.graced;
    sum.of_the_gone += outcome.of_the_gone;
    sum.notices += outcome.notices;
    sum.repeated_answers += outcome.repeated_answers;
    sum.restores += outcome.restores;
    sum.lost += outcome.lost;
    sum.deaths += outcome.deaths;
    sum.joins += outcome.joins;
    sum.stream_breaks += outcome.stream_breaks;
  }
  const uint64_t histories = seed - seeds.first();
  std::printf(
      "%lu seeds from %lu on: %lu events, %lu applied, %lu of them from workers gone, %lu steps at a deadline, %lu "
      "with more than "
      "their quorum, %lu "
      "discarded, %lu of them late, %lu notices, %lu repeated answers, %lu restores, %lu lost and reported, %lu "
      "deaths, %lu joins, "
      "%lu broken streams\n",
      histories, seeds.first(), sum.events, sum.applied, sum.of_the_gone, sum.overdue, sum.graced, sum.discarded,
      sum.late, sum.notices, sum.repeated_answers, sum.restores, sum.lost, sum.deaths, sum.joins, sum.stream_breaks);
  // A search that had no time may have been short.
  if (histories < 1000 || !seeds.Ends(seed)) return;
  // Histories in which nothing happens would prove nothing.
  EXPECT_GT(sum.restores, histories / 2);
  EXPECT_GT(sum.discarded, sum.late);
  EXPECT_GT(sum.late, histories / 10);
  EXPECT_GT(sum.overdue, histories / 10);
  EXPECT_GT(sum.graced, histories / 10);
  EXPECT_GT(sum.of_the_gone, 0u);
  EXPECT_GT(sum.notices, histories / 10);
  EXPECT_GT(sum.repeated_answers, 0u);
  EXPECT_GT(sum.lost, 0u);
  EXPECT_GT(sum.deaths, histories / 10);
}

// The first: each of two shards had discarded a worker that waited for the other. The second: a restored shard told the
// scheduler of an earlier clock than it had given a worker that it had not heard of.
TEST(ClusterSim, HistoriesThatOnceFailedDoNot) {
  for (const uint64_t seed : {599, 197563}) EXPECT_EQ(Simulate(OptionsOf(seed)).violation, "");
}

// The first violation with these words that the planted bug brings about; else the last one, or nothing.
std::string FirstViolation(Bugs bugs, uint64_t limit, const std::string& words) {
  std::string violation;
  for (uint64_t seed = 1; seed <= limit && violation.find(words) == std::string::npos; ++seed) {
    Options options = OptionsOf(seed);
    options.bugs = bugs;
    const Outcome outcome = Simulate(options);
    if (!outcome.violation.empty()) violation = outcome.violation;
  }
  return violation;
}

TEST(ClusterSim, CatchesAShardThatIgnoresLineageAfterARestore) {
  Bugs bugs;
  bugs.ignore_lineage = true;
  const std::string violation = FirstViolation(bugs, 500, "not in its history");
  EXPECT_NE(violation.find("not in its history"), std::string::npos) << violation;
}

TEST(ClusterSim, CatchesARestoredShardThatWaitsForClocksNobodyWillSendAgain) {
  Bugs bugs;
  bugs.no_fast_forward = true;
  const std::string violation = FirstViolation(bugs, 500, "has not said so");
  EXPECT_NE(violation.find("has not said so"), std::string::npos) << violation;
}

TEST(ClusterSim, CatchesASoftsyncThatForgetsWhatALeaverWasToldIsApplied) {
  Bugs bugs;
  bugs.drop_accepted = true;
  const std::string violation = FirstViolation(bugs, 500, "drops what it has accepted");
  EXPECT_NE(violation.find("drops what it has accepted"), std::string::npos) << violation;
}

TEST(ClusterSim, CatchesAQuorumThatTakesLatePushes) {
  Bugs bugs;
  bugs.take_late = true;
  const std::string violation = FirstViolation(bugs, 500, "computed from");
  EXPECT_NE(violation.find("computed from"), std::string::npos) << violation;
}

TEST(ClusterSim, CatchesAQuorumThatWaitsForWhoDoesNotCome) {
  Bugs bugs;
  bugs.endless_grace = true;
  const std::string violation = FirstViolation(bugs, 1000, "has had its quorum for");
  EXPECT_NE(violation.find("has had its quorum for"), std::string::npos) << violation;
}

TEST(ClusterSim, TheSameSeedGivesTheSameHistory) {
  EXPECT_EQ(Simulate(OptionsOf(7)).events, Simulate(OptionsOf(7)).events);
}

}  // namespace
}  // namespace slackline::sim::cluster_sim_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return slackline::sim::cluster_sim_test::seeds.Read(argc, argv, "--histories=") ? RUN_ALL_TESTS() : 2;
}

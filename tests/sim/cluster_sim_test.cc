// The cores under random histories. Each history is one seed; a failure prints it, and
// `cluster_sim_test --seed=N` replays it. `--histories=N` sets how many.
#include "tests/sim/cluster_sim.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace slackline::sim {
namespace {

uint64_t histories = 10000;
uint64_t first_seed = 1;

ps::Mode ModeOf(uint64_t seed) {
  constexpr ps::Mode kModes[] = {ps::Mode::kSsp, ps::Mode::kBsp, ps::Mode::kAsync};
  return kModes[seed % 3];
}

Options OptionsOf(uint64_t seed) {
  Options options;
  options.seed = seed;
  options.mode = ModeOf(seed);
  options.staleness_max = seed / 3 % 4;
  return options;
}

TEST(ClusterSim, InvariantsHoldInEveryHistory) {
  Outcome sum;
  for (uint64_t seed = first_seed; seed < first_seed + histories; ++seed) {
    const Outcome outcome = Simulate(OptionsOf(seed));
    ASSERT_EQ(outcome.violation, "");
    sum.events += outcome.events;
    sum.applied += outcome.applied;
    sum.discarded += outcome.discarded;
    sum.repeated_answers += outcome.repeated_answers;
    sum.restores += outcome.restores;
    sum.lost += outcome.lost;
    sum.deaths += outcome.deaths;
    sum.joins += outcome.joins;
    sum.stream_breaks += outcome.stream_breaks;
  }
  std::printf(
      "seeds %lu to %lu: %lu events, %lu applied, %lu discarded, %lu repeated answers, %lu restores, %lu lost and "
      "reported, %lu deaths, %lu joins, %lu broken streams\n",
      first_seed, first_seed + histories - 1, sum.events, sum.applied, sum.discarded, sum.repeated_answers,
      sum.restores, sum.lost, sum.deaths, sum.joins, sum.stream_breaks);
  if (histories < 1000) return;
  // Histories in which nothing happens would prove nothing.
  EXPECT_GT(sum.restores, histories / 2);
  EXPECT_GT(sum.discarded, 0u);
  EXPECT_GT(sum.repeated_answers, 0u);
  EXPECT_GT(sum.lost, 0u);
  EXPECT_GT(sum.deaths, histories / 10);
}

// How many histories it takes until the planted bug is seen, and as what.
std::string FirstViolation(ps::Engine::Bugs bugs, uint64_t limit) {
  for (uint64_t seed = 1; seed <= limit; ++seed) {
    Options options = OptionsOf(seed);
    options.bugs = bugs;
    const Outcome outcome = Simulate(options);
    if (!outcome.violation.empty()) return outcome.violation;
  }
  return "";
}

TEST(ClusterSim, CatchesAShardThatIgnoresLineageAfterARestore) {
  ps::Engine::Bugs bugs;
  bugs.ignore_lineage = true;
  const std::string violation = FirstViolation(bugs, 500);
  EXPECT_NE(violation.find("not in its history"), std::string::npos) << violation;
}

TEST(ClusterSim, CatchesARestoredShardThatWaitsForClocksNobodyWillSendAgain) {
  ps::Engine::Bugs bugs;
  bugs.no_fast_forward = true;
  const std::string violation = FirstViolation(bugs, 500);
  // It shows as a refusal of every later push, or as a wait without end.
  EXPECT_TRUE(violation.find("refuses a member") != std::string::npos || violation.find("hang") != std::string::npos)
      << violation;
}

TEST(ClusterSim, TheSameSeedGivesTheSameHistory) {
  EXPECT_EQ(Simulate(OptionsOf(7)).events, Simulate(OptionsOf(7)).events);
}

bool Flag(const char* argument, const char* name, uint64_t* value) {
  absl::string_view text = argument;
  return absl::ConsumePrefix(&text, name) && absl::SimpleAtoi(text, value);
}

}  // namespace
}  // namespace slackline::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (slackline::sim::Flag(argv[i], "--histories=", &slackline::sim::histories)) continue;
    if (slackline::sim::Flag(argv[i], "--seed=", &slackline::sim::first_seed)) {
      slackline::sim::histories = 1;
      continue;
    }
    std::fprintf(stderr, "unknown argument %s; allowed are --histories=N and --seed=N\n", argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}

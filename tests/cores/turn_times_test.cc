// How long a step waits for pushes that are likely to come.
#include "ps/consistency/turn_times.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace slackline::ps::turn_times_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::Time At(int64_t ms) { return absl::FromUnixMillis(ms); }

// Examples: "120: 0.5", in milliseconds and samples.
std::vector<std::string> LikelyAt(const TurnTimes& times, int64_t pulled_ms, int64_t now_ms) {
  std::vector<LikelyPush> likely = {{At(0), 7}};  // another worker's stays as it is
  times.AddLikely(At(pulled_ms), At(now_ms), 1, likely);
  EXPECT_EQ(likely.front().samples, 7);
  std::vector<std::string> lines;
  for (size_t i = 1; i < likely.size(); ++i) {
    lines.push_back(absl::StrCat(absl::ToUnixMillis(likely[i].at), ": ", likely[i].samples));
  }
  return lines;
}

TEST(TurnTimesTest, EachTimeThatWouldStillBringThePushIsAsLikely) {
  TurnTimes times;
  EXPECT_THAT(LikelyAt(times, 100, 100), IsEmpty());
  for (const int ms : {20, 40, 10, 30}) times.Add(absl::Milliseconds(ms));
  EXPECT_THAT(LikelyAt(times, 100, 100), ElementsAre("120: 0.2", "140: 0.2", "110: 0.2", "130: 0.2", "160: 0.2"));
  EXPECT_THAT(LikelyAt(times, 100, 130), ElementsAre("140: 0.5", "160: 0.5"));
  EXPECT_THAT(LikelyAt(times, 100, 140), ElementsAre("160: 1"))
      << "later than ever: as far beyond 40 as 40 is beyond 20";
  EXPECT_THAT(LikelyAt(times, 100, 160), IsEmpty());
  for (size_t i = 0; i < TurnTimes::kKept; ++i) times.Add(absl::Milliseconds(5));
  EXPECT_THAT(LikelyAt(times, 100, 105), IsEmpty()) << "older times are forgotten";
}

// Returns the best end of a step that began at 0 and has 2 samples.
absl::Time BestEnd(std::vector<LikelyPush> likely, int64_t now_ms, double& best, int64_t latest_ms = 1000000) {
  return BestEndOfStep({.begun = At(0), .latest = At(latest_ms), .samples = 2, .likely = std::move(likely)}, At(now_ms),
                       best);
}

TEST(BestEndOfStepTest, IsThatWithTheMostSamplesPerSecond) {
  struct Case {
    std::vector<LikelyPush> likely;
    int64_t end_ms;
    const char* why;
  };
  for (const Case& c :
       {Case{{}, 100, "nobody else"}, Case{{{At(150)}}, 150, "2 and 3 x 1 in 150 ms"},
        Case{{{At(151)}}, 100, "2 and 1 in 151 ms: it is too late to count three times"},
        Case{{{At(149), 0.3}}, 100, "2.9 in 149 ms are no more than 2 in 100 ms"},
        Case{{{At(170), 4}}, 170, "but 2 and 4 in 170 ms are"},
        Case{{{At(120)}, {At(300)}}, 120, "the second one takes too long"},
        Case{{{At(120), 0.5}, {At(300), 0.5}}, 120, "it comes at once or not soon"},
        Case{{{At(190), 1.5}, {At(180), 1.5}}, 190, "5 in 190 ms, though the first alone is no gain"}}) {
    double best = 0;
    EXPECT_EQ(BestEnd(c.likely, 100, best), At(c.end_ms)) << c.why;
    EXPECT_EQ(best, 20);
  }
}

TEST(BestEndOfStepTest, IsNotPutOffByPushesThatDidNotCome) {
  double best = 0;
  EXPECT_EQ(BestEnd({{At(140)}}, 100, best), At(140));
  EXPECT_EQ(BestEnd({{At(260), 2.5}}, 140, best), At(140)) << "4.5 in 260 ms, and there were 2 in 100 ms";
  EXPECT_EQ(BestEnd({{At(190)}}, 0, best), At(0)) << "a step has just been";
}

TEST(BestEndOfStepTest, IsNotBehindTheDeadline) {
  double best = 0;
  EXPECT_EQ(BestEnd({{At(120)}, {At(130), 9}}, 100, best, 125), At(120));
  EXPECT_EQ(BestEnd({{At(130)}}, 100, best, 125), At(100));
}

}  // namespace
}  // namespace slackline::ps::turn_times_test

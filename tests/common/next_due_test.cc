#include "common/time/next_due.h"

#include <gtest/gtest.h>
#include "absl/time/time.h"

namespace slackline {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(3);
const absl::Time kDue = absl::UnixEpoch();

TEST(NextDue, IsOnePeriodLater) {
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue), kDue + kPeriod);
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue + absl::Seconds(2)), kDue + kPeriod);
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue + kPeriod), kDue + kPeriod);
}

TEST(NextDue, LeavesOutWhatIsPastAndKeepsTheOthersWhereTheyAre) {
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue + absl::Seconds(4)), kDue + 2 * kPeriod);
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue + absl::Seconds(6)), kDue + 2 * kPeriod);
  EXPECT_EQ(NextDue(kDue, kPeriod, kDue + absl::Seconds(1000)), kDue + absl::Seconds(1002));
}

}  // namespace
}  // namespace slackline

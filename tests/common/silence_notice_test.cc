#include "common/log/silence_notice.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace slackline::silence_notice_test {
namespace {

TEST(SilenceNotice, SpeaksEveryFiveSeconds) {
  log::Initialise("test");
  const absl::Time start = absl::UnixEpoch();
  SilenceNotice notice("the scheduler at node:1", start, absl::Seconds(60));
  ::testing::internal::CaptureStderr();
  for (int second = 0; second <= 11; ++second) notice.NoAnswer(start + absl::Seconds(second));
  log::Flush();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string line = "no answer from the scheduler at node:1 since ";
  EXPECT_NE(said.find(line + "5 s; gives up after 60 s"), std::string::npos) << said;
  EXPECT_NE(said.find(line + "10 s; gives up after 60 s"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
}

}  // namespace
}  // namespace slackline::silence_notice_test

// Lines that processes write to standard error.
#include "common/log/logging.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log/log_format.h"
#include "common/text/json_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::logging_test {
namespace {

using testing::MatchesRegex;

template <typename Speak>
std::string Written(const Speak& speak) {
  ::testing::internal::CaptureStderr();
  speak();
  log::Flush();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Logging, ALineOfTextHasTimeProcessAndLevel) {
  log::Initialise("ps-1");
  EXPECT_THAT(Written([] { log::Warning("a ", 1); }),
              MatchesRegex("20[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9] ps-1 warning: a 1\n"));
}

TEST(Logging, ACommandSaysItsName) {
  log::InitialiseCommand("slackline");
  EXPECT_EQ(Written([] { log::Error("found ", 1); }), "slackline: found 1\n");
}

TEST(Logging, JsonIsOneObjectALine) {
  log::Initialise("ps-\"1\"");
  log::WriteJson("first");
  const std::string message = "two\nlines, \"quotes\", C:\\, \t \r \x01 \x7f and \xc3\xa9";
  const absl::Time before = absl::Now();
  const std::string written = Written([&] {
    log::Info(message);
    log::Error("second");
  });
  const size_t end = written.find('\n');
  ASSERT_EQ(std::count(written.begin(), written.end(), '\n'), 2) << written;
  const nlohmann::json line = nlohmann::json::parse(written.substr(0, end));
  EXPECT_EQ(line.size(), 5u);
  EXPECT_EQ(line["message"], message);
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["process"], "ps-\"1\"");
  EXPECT_EQ(line["job"], "first");
  const std::string time = line["time"];
  EXPECT_THAT(time, MatchesRegex("20[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9][+-][0-9][0-9]:[0-9][0-9]"));
  absl::Time read;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, time, &read, nullptr));
  EXPECT_GE(read, before - absl::Milliseconds(1));
  EXPECT_EQ(nlohmann::json::parse(written.substr(end + 1))["level"], "error");
}

TEST(Logging, WhatIsTooUnimportantIsNotWrittenAsJsonEither) {
  log::Initialise("quiet", log::Least::kWarning);
  log::WriteJson("first");
  EXPECT_EQ(Written([] { log::Info("nothing of note"); }), "");
}

TEST(JsonText, EveryByteStringIsValid) {
  for (const std::string bad :
       {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xf0\x9f\x98"}) {
    const nlohmann::json read = nlohmann::json::parse(JsonText(bad + "end"), nullptr, false);
    ASSERT_TRUE(read.is_string()) << bad;
    EXPECT_THAT(read.get<std::string>(), MatchesRegex("(\xef\xbf\xbd)+end"));
  }
  for (const std::string good :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(nlohmann::json::parse(JsonText(good)).get<std::string>(), good);
  }
  std::string bytes;
  for (int byte = 0; byte < 128; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(nlohmann::json::parse(JsonText(bytes)).get<std::string>(), bytes);
}

}  // namespace
}  // namespace slackline::logging_test

#include "scheduler/record/line_file.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "scheduler/base/event_log.h"
#include "tests/common/tiny_disk.h"

namespace slackline::scheduler::line_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class LineFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "slackline-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
};

TEST_F(LineFileTest, ALineThatWasCutOffIsRemovedWhenItIsOpenedAgain) {
  const std::string path = root_ / "events.log";
  const std::string whole = "one\ntwo " + std::string(9000, 'x') + "\n";
  for (const std::string& torn : {std::string("thr"), std::string(9000, 'y'), std::string()}) {
    std::ofstream(path) << whole << torn;
    auto file = LineFile::Open(path, "header");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(TextOf(path), whole);
    EXPECT_EQ((*file)->Add("next"), absl::OkStatus());
    EXPECT_EQ(TextOf(path), whole + "next\n");
  }
  std::ofstream(path) << "head";
  ASSERT_TRUE(LineFile::Open(path, "header").ok());
  EXPECT_EQ(TextOf(path), "header\n") << "nothing of it was whole";
}

TEST_F(LineFileTest, WhatOthersSayIsOneLine) {
  auto file = LineFile::Open(root_ / "events.log", "");
  ASSERT_EQ((*file)->Add("worker x is dead: a\nb"), absl::OkStatus());
  EXPECT_EQ(TextOf(root_ / "events.log"), "worker x is dead: a b\n");
}

TEST_F(LineFileTest, AFileThatSomebodyRemovesIsMadeAnewWithItsHeader) {
  const std::string path = root_ / "metrics.csv";
  auto file = LineFile::Open(path, "time,loss");
  ASSERT_EQ((*file)->Add("1,2"), absl::OkStatus());
  std::filesystem::remove(path);
  EXPECT_EQ((*file)->Add("2,1"), absl::OkStatus());
  EXPECT_EQ(TextOf(path), "time,loss\n2,1\n");
}

TEST_F(LineFileTest, WhatHasNoRoomIsKeptAndSaidToBe) {
  auto file = LineFile::Open("/dev/full", "");
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status full = (*file)->Add("one");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("cannot write /dev/full: No space left on device"));
  EXPECT_TRUE((*file)->behind());
}

TEST(LineFileOnATinyDisk, NothingIsLostAndNothingIsHalf) {
  const TinyDisk disk;
  if (!disk.there()) GTEST_SKIP() << "may not mount";
  const std::string path = disk.path() / "events.log";
  auto file = LineFile::Open(path, "");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->Add("first"), absl::OkStatus());
  disk.Fill();
  // The page that is there has room for some of them.
  std::string expected = "first\n";
  for (int i = 0; i < 50; ++i) {
    const std::string line = std::to_string(i) + std::string(200, 'x');
    (*file)->Add(line).IgnoreError();
    expected += line + "\n";
  }
  EXPECT_TRUE((*file)->behind());
  EXPECT_EQ(expected.find(TextOf(path)), 0) << "whole lines, and no other";
  EXPECT_EQ(TextOf(path).back(), '\n');
  disk.MakeRoom();
  EXPECT_EQ((*file)->Flush(), absl::OkStatus());
  EXPECT_EQ(TextOf(path), expected);
}

TEST(EventLog, AnEventIsOneLineWithoutCommandsToATerminal) {
  EventLog log;
  log.Add("worker-1 leaves: \x1b[2J\nsecond");
  EXPECT_EQ(log.recent().front(), "worker-1 leaves: \\x1b[2J\\nsecond");
}

TEST(EventLog, PeopleAreToldWhenItIsOnRecord) {
  EventLog log(/*after_record=*/true);
  log.Add("one");
  EXPECT_THAT(log.recent(), IsEmpty());
  EXPECT_THAT(log.Take(), ElementsAre("one"));
  log.Add("two", Audience::kRecord);
  log.Add("three");
  EXPECT_EQ(log.count(), 0);
  log.Recorded();
  EXPECT_THAT(log.recent(), ElementsAre("one")) << "what came meanwhile is not on record yet";
  EXPECT_THAT(log.Take(), ElementsAre("two", "three"));
  log.Recorded();
  EXPECT_THAT(log.recent(), ElementsAre("one", "three"));
  EXPECT_EQ(log.count(), 2);
}

}  // namespace
}  // namespace slackline::scheduler::line_file_test

#include "scheduler/record/line_file.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "scheduler/base/event_log.h"
#include "scheduler/record/power_file.h"
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

using PowerFileTest = LineFileTest;

TEST_F(PowerFileTest, ARunThatMetersNothingHasNone) {
  PowerFile file(root_ / "power.csv");
  EXPECT_TRUE(file.Add({}).ok());
  EXPECT_TRUE(file.Flush().ok());
  EXPECT_FALSE(std::filesystem::exists(root_ / "power.csv"));
}

TEST_F(PowerFileTest, HasARowForEachSampleAndGoesOnAfterARestart) {
  const std::string path = root_ / "power.csv";
  EXPECT_TRUE(PowerFile(path).Add({{-0.5, "n1", "package-0", 61.25}, {0, "a,b", "gpu-0000:65:00.0", 200}}).ok());
  EXPECT_TRUE(PowerFile(path).Add({{12.3456, "n1", "package-0", 1234567}}).ok());
  EXPECT_EQ(TextOf(path),
            "time_s,node,device,watts\n-0.500,n1,package-0,61.25\n0.000,\"a,b\",gpu-0000:65:00.0,200\n"
            "12.346,n1,package-0,1.23457e+06\n");
}

TEST_F(PowerFileTest, ItsSizeIsBounded) {
  const std::string path = root_ / "power.csv";
  PowerFile file(path, /*bytes_max=*/60);
  EXPECT_TRUE(file.Add({{1, "n1", "package-0", 50}}).ok());
  EXPECT_FALSE(file.full());
  EXPECT_TRUE(file.Add({{2, "n1", "package-0", 50}, {3, "n1", "package-0", 50}}).ok());
  EXPECT_TRUE(file.full());
  EXPECT_EQ(TextOf(path), "time_s,node,device,watts\n1.000,n1,package-0,50\n");
  // A file that is opened again knows its size.
  PowerFile again(path, /*bytes_max=*/60);
  EXPECT_TRUE(again.Add({{4, "n1", "package-0", 50}}).ok());
  EXPECT_TRUE(again.full());
}

}  // namespace
}  // namespace slackline::scheduler::line_file_test

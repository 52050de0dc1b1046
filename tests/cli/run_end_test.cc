// The end of a run, as its run folder records it; and the meaning of silence for programs that look after a run.
#include "cli/run/run_end.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/time/time.h"
#include "cli/base/silence.h"
#include "cli/run/run_checks.h"
#include "cli/run/slurm_queue.h"

namespace slackline::cli::run_end_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class RunEnd : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "slackline-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    std::ofstream(root_ / "job.yaml") << "name: first\n";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string Events() const {
    std::ifstream in(root_ / "events.log");
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void Happened(const std::string& what) {
    std::ofstream(root_ / "events.log", std::ios::app) << "2025-01-31 12:00:00.000 " << what << "\n";
  }

  std::filesystem::path root_;
};

TEST_F(RunEnd, OneThatOnlyTheLauncherKnowsIsRecorded) {
  Happened("training begins with 2 workers on 10 samples for 1 epoch");
  ASSERT_EQ(ReadEnd(root_)->state(), kLost);
  ASSERT_EQ(RecordEnd(root_, "failed", "ps-1 died"), absl::OkStatus());
  const auto end = ReadEnd(root_);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->state(), "failed");
  EXPECT_EQ(end->reason(), "ps-1 died");
  EXPECT_THAT(Events(), EndsWith("the job is failed: ps-1 died\n"));
  ASSERT_EQ(RecordEnd(root_, "stopped", "by a signal"), absl::OkStatus());
  EXPECT_EQ(ReadEnd(root_)->reason(), "ps-1 died") << "it has ended once";
}

TEST_F(RunEnd, AnOrderToARunThatIsOverSaysSo) {
  const absl::Status failed = absl::UnavailableError("no answer");
  EXPECT_EQ(OrTheEnd("127.0.0.1:1", failed), failed) << "of an address nothing is known";
  Happened("training begins with 2 workers on 10 samples for 1 epoch");
  ASSERT_EQ(RecordEnd(root_, "failed", "ps-1 died"), absl::OkStatus());
  const absl::Status over = OrTheEnd(root_.string(), failed);
  EXPECT_TRUE(absl::IsFailedPrecondition(over));
  EXPECT_EQ(over.message(), "the run in " + root_.string() +
                                " is over: it is failed: ps-1 died; to continue: slackline train " + root_.string() +
                                "/job.yaml");
  std::filesystem::create_directory(root_ / "scheduler");
  std::filesystem::remove(root_ / "events.log");
  ASSERT_EQ(ReadEnd(root_)->state(), kAway);
  EXPECT_EQ(OrTheEnd(root_.string(), failed), failed) << "it may come back";
}

TEST_F(RunEnd, AJobOfAServiceGoesOnByItsNumber) {
  const std::filesystem::path run = root_ / "jobs" / "7" / "run";
  std::filesystem::create_directories(run);
  std::ofstream(run / "job.yaml") << "name: first\n";
  std::ofstream(run / "events.log")
      << "2025-01-31 12:00:00.000 training begins with 2 workers on 10 samples for 1 epoch\n";
  ASSERT_EQ(RecordEnd(run, "failed", "ps-1 died"), absl::OkStatus());
  EXPECT_EQ(ReadEnd(run)->go_on(), "slackline train " + (run / "job.yaml").string()) << "no service is there";
  std::filesystem::create_directory(root_ / "book");
  EXPECT_EQ(ReadEnd(run)->go_on(), "slackline resume " + (root_ / "7").string());
}

TEST_F(RunEnd, OneOfBeforeIsNotThatOfARunThatWentOn) {
  Happened("the job is stopped: by a signal");
  Happened("goes on from checkpoint 1: 10 samples");
  ASSERT_EQ(RecordEnd(root_, "failed", "the scheduler died"), absl::OkStatus());
  EXPECT_EQ(ReadEnd(root_)->state(), "failed");
}

TEST_F(RunEnd, WhatTheSchedulerHasWrittenStays) {
  Happened("the job is done: training is complete");
  const std::string before = Events();
  ASSERT_EQ(RecordEnd(root_, "failed", "somebody is impatient"), absl::OkStatus());
  EXPECT_EQ(Events(), before);
}

TEST_F(RunEnd, WithoutAnyEventItIsTheFirst) {
  ASSERT_EQ(RecordEnd(root_, "failed", "the scheduler died"), absl::OkStatus());
  EXPECT_EQ(ReadEnd(root_)->state(), "failed");
}

TEST_F(RunEnd, ASimulationHasVirtualTimes) {
  std::ofstream(root_ / "events.log") << absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(12500),
                                                          absl::LocalTimeZone())
                                      << " the job is done: training is complete\n";
  const auto end = ReadEnd(root_);
  ASSERT_TRUE(end.ok()) << end.status();
  const std::string text = RenderEnd(*end);
  EXPECT_THAT(text, HasSubstr("job first: done at 12.500 s of virtual time (training is complete)\n"));
  EXPECT_THAT(text, HasSubstr("to start again: slackline simulate " + root_.string() + "/job.yaml\n"));
}

TEST_F(RunEnd, DataWithoutImagesAreNamed) {
  job::Job job;
  job.mutable_data()->set_path(root_ / "nowhere");
  EXPECT_THAT(std::string(CheckData(job).message()), HasSubstr("data.path: found no folder"));
  job.mutable_data()->set_path(root_);
  std::ofstream(root_ / "train-images-idx3-ubyte") << "x";
  std::ofstream(root_ / "train-labels-idx1-ubyte.gz") << "x";
  EXPECT_THAT(std::string(CheckData(job).message()),
              HasSubstr("data.path: found no t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte in "));
  std::ofstream(root_ / "t10k-images-idx3-ubyte.gz") << "x";
  std::ofstream(root_ / "t10k-labels-idx1-ubyte") << "x";
  EXPECT_EQ(CheckData(job), absl::OkStatus());
}

TEST(SilenceTest, CountsFromTheLastAnswerAndNotWhatThisProcessSlept) {
  SchedulerSilence silence;
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 100; ++i) silence.Look(false, now += absl::Milliseconds(200));
  EXPECT_EQ(silence.lasted(), absl::ZeroDuration()) << "it has never answered";
  silence.Look(true, now);
  for (int i = 0; i < 10; ++i) silence.Look(false, now += absl::Milliseconds(200));
  EXPECT_EQ(silence.lasted(), absl::Seconds(2));
  silence.Look(false, now += absl::Hours(8));
  EXPECT_EQ(silence.lasted(), absl::Seconds(5)) << "the machine slept";
  silence.Look(true, now);
  EXPECT_EQ(silence.lasted(), absl::ZeroDuration());
  silence.Begin();
  silence.Look(false, now += absl::Seconds(2));
  EXPECT_EQ(silence.lasted(), absl::ZeroDuration()) << "another one, which has not answered yet";
}

TEST(SilenceTest, IsAllowedFor16HeartbeatsAndAFewQuestions) {
  job::Job job;
  EXPECT_EQ(SchedulerSilenceMax(job), absl::Seconds(5));
  job.mutable_timeouts()->set_heartbeat_ms(1000);
  EXPECT_EQ(SchedulerSilenceMax(job), absl::Seconds(16));
}

TEST(SlurmQueue, ALineOfItSaysWhyAJobWaits) {
  const auto pending = ParseQueued("12|PENDING|Resources|2025-01-31T12:00:00|\n");
  ASSERT_TRUE(pending.has_value());
  EXPECT_TRUE(pending->pending());
  EXPECT_EQ(pending->Describe(), "SLURM job 12 is PENDING (Resources), expected to start at 2025-01-31T12:00:00");
  EXPECT_EQ(ParseQueued("12|PENDING|None|N/A|")->Describe(), "SLURM job 12 is PENDING");
  EXPECT_EQ(ParseQueued("12_3|RUNNING|None|2025-01-31T12:00:00|n[1-2]")->Describe(),
            "SLURM job 12_3 is RUNNING on n[1-2]");
  EXPECT_TRUE(ParseQueued("12|COMPLETING|None|2025-01-31T12:00:00|n1")->ends());
  for (const char* wrong : {"", "slurm_load_jobs error: Invalid job id specified", "a|b", "|PENDING|a|b|"}) {
    EXPECT_FALSE(ParseQueued(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace slackline::cli::run_end_test

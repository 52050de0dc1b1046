// `slackline runs`: runs of a folder as their files tell them, in a table and in JSON.
#include "cli/commands/runs.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/run/run_lock.h"

namespace slackline::cli::runs_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kJob[] =
    "name: first\n"
    "cluster: {workers: 3, servers: 2}\n"
    "consistency: {mode: bsp}\n"
    "training: {epochs: 5}\n";

class Runs : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "slackline-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  // Makes a run that began so many hours ago, and has trained two epochs.
  void Begin(const std::string& run, int hours, const std::string& job = kJob) const {
    Write(run + "/job.yaml", job);
    Write(run + "/events.log", "2025-01-31 12:00:00.000 training begins\n");
    Write(run + "/epochs.csv", "epoch,end_s\n1,10.5\n2,21.5\n");
    Write(run + "/metrics.csv", "time_s,epoch,loss,test_accuracy\n10.5,1,0.9,0.875\n21.5,3,0.8,0.75\n");
    fs::last_write_time(root_ / run / "job.yaml", fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  void End(const std::string& run, const std::string& state, const std::string& summary = "") const {
    std::ofstream(root_ / run / "events.log", std::ios::app)
        << "2025-01-31 12:00:30.000 the job is " << state << ": for a reason\n";
    if (!summary.empty()) Write(run + "/summary.json", summary);
  }
  std::vector<ListedRun> Find() const {
    const absl::StatusOr<std::vector<ListedRun>> runs = FindRuns(root_);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return runs.ok() ? *runs : std::vector<ListedRun>();
  }
  std::vector<std::string> Lines() const {
    return absl::StrSplit(RenderRuns(Find(), absl::Now()), '\n', absl::SkipEmpty());
  }

  fs::path root_;
};

TEST_F(Runs, TheNewestIsFirstAndItsFiguresAreThoseOfTheSummary) {
  Begin("old", 72);
  End("old", "failed");
  Begin("new", 2);
  End("new", "done",
      R"({"state": "done", "workers": 9, "epochs_done": 5, "best_test_accuracy": 0.90625, "test_metric": "accuracy"})");
  EXPECT_THAT(Lines(),
              ElementsAre("run  state   mode workers servers epochs best test age  size",
                          ContainsRegex("^new  done    bsp        3       2    5/5   90\\.62 % 2 h [0-9]+ B$"),
                          ContainsRegex("^old  failed  bsp        3       2    2/5   87\\.50 % 3 d [0-9]+ B$")));
}

TEST_F(Runs, TheSummaryOfAnEarlierEndDoesNotCount) {
  Begin("first", 1);
  End("first", "stopped", R"({"state": "done", "epochs_done": 5, "best_test_accuracy": 0.9})");
  const std::vector<ListedRun> runs = Find();
  ASSERT_THAT(runs, SizeIs(1));
  EXPECT_EQ(runs[0].state, "stopped");
  EXPECT_EQ(runs[0].figures.epochs_done, 2u);
  EXPECT_EQ(runs[0].figures.best_test_accuracy, 0.875);
}

TEST_F(Runs, ARunIsRunningWhileItsLockIsHeldAndLostAfterwards) {
  Begin("first", 1);
  {
    const absl::StatusOr<RunLock> lock = RunLock::Take(root_ / "first");
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(Find().at(0).state, kRunning);
  }
  EXPECT_EQ(Find().at(0).state, "lost");
}

TEST_F(Runs, ARunThatWasStartedByHandIsAwayUntilItEnds) {
  Begin("by-hand", 1);
  fs::create_directory(root_ / "by-hand" / "scheduler");
  EXPECT_EQ(Find().at(0).state, "away");
  End("by-hand", "done");
  EXPECT_EQ(Find().at(0).state, "done");
}

TEST_F(Runs, ABrokenRunIsListedWithWhatIsKnown) {
  Begin("broken", 1, "name: [");
  End("broken", "failed", R"({"state": "failed", "mode": "quorum", "workers": 4, "servers": "x", "epochs": -1})");
  Begin("cut", 2, "");
  fs::remove(root_ / "cut" / "job.yaml");
  fs::create_directories(root_ / "cut" / "job.yaml");
  End("cut", "done", R"({"state": "done", "mode": "bs)");
  Write("cut/epochs.csv", std::string("\0\xff,,\nnot a number\n", 18));
  Write("cut/metrics.csv", "time_s,test_accuracy\n1,1e300\n");
  Begin("fine", 3);
  const std::vector<ListedRun> runs = Find();
  ASSERT_THAT(runs, SizeIs(3));
  for (const ListedRun& run : runs) {
    const RunFigures& figures = run.figures;
    if (run.folder.filename() == "broken") {
      EXPECT_EQ(run.state, "failed");
      EXPECT_EQ(figures.mode, "quorum");
      EXPECT_EQ(figures.workers, 4u);
      EXPECT_EQ(figures.servers, std::nullopt);
      EXPECT_EQ(figures.epochs, std::nullopt);
    } else if (run.folder.filename() == "cut") {
      EXPECT_EQ(run.state, "done");
      EXPECT_EQ(figures.mode, "");
      EXPECT_EQ(figures.workers, std::nullopt);
      EXPECT_EQ(figures.epochs_done, 0u);
      EXPECT_EQ(figures.best_test_accuracy, std::nullopt);
    }
  }
  EXPECT_THAT(RenderRuns(runs, absl::Now()), ContainsRegex("cut +done +- +- +- +0/- +- "));
  const nlohmann::json list = nlohmann::json::parse(RunsJson(runs, absl::Now()));
  ASSERT_THAT(list, SizeIs(3));
  for (const nlohmann::json& run : list) EXPECT_EQ(run.at("servers").is_null(), run.at("name") != "fine");
}

TEST_F(Runs, AFolderThatNobodyMayLookIntoIsListed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may look into every folder";
  Begin("closed", 1);
  fs::permissions(root_ / "closed", fs::perms::none);
  const std::vector<std::string> lines = Lines();
  fs::permissions(root_ / "closed", fs::perms::owner_all);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[1], ContainsRegex("^closed +- +- +- +- +- +- +- +-$"));
}

TEST_F(Runs, WhatIsNoRunIsLeftOut) {
  Write("notes.txt", "job.yaml");
  Write("data/train.idx", "x");
  fs::create_directory(root_ / "empty");
  EXPECT_THAT(Find(), IsEmpty());
  EXPECT_EQ(RunsJson({}, absl::Now()), "[]\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(ListRuns(root_.string(), /*json=*/false), kExitDone);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), absl::StrCat("There are no runs in ", root_.string(), ".\n"));
}

TEST_F(Runs, AMissingFolderIsWrongUse) {
  const std::string missing = root_ / "missing";
  const absl::Status status = FindRuns(missing).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("found no folder ", missing, "; allowed is a folder that holds run folders: ")));
  EXPECT_EQ(ListRuns(missing, /*json=*/true), kExitWrongUse);
  Write("file", "x");
  EXPECT_TRUE(absl::IsNotFound(FindRuns(root_ / "file").status()));
}

TEST_F(Runs, TheSizeCountsEveryFileOnce) {
  Write("first/job.yaml", kJob);
  Write("first/checkpoints/one/shard", std::string(10'000, 'x'));
  fs::create_directories(root_ / "first" / "checkpoints" / "two");
  fs::create_hard_link(root_ / "first/checkpoints/one/shard", root_ / "first/checkpoints/two/shard");
  fs::create_directory_symlink(root_, root_ / "first" / "up");
  EXPECT_EQ(Find().at(0).bytes, 10'000 + sizeof(kJob) - 1);
}

TEST_F(Runs, JsonHasRawValues) {
  Begin("first", 3);
  End("first", "done", R"({"state": "done", "epochs_done": 5, "best_test_accuracy": 0.375, "test_metric": "map"})");
  std::vector<ListedRun> runs = Find();
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_TRUE(runs[0].begun && runs[0].bytes);
  const nlohmann::ordered_json list = nlohmann::ordered_json::parse(RunsJson(runs, *runs[0].begun + absl::Hours(3)));
  EXPECT_EQ(list, nlohmann::ordered_json::array({{{"name", "first"},
                                                  {"folder", (root_ / "first").string()},
                                                  {"state", "done"},
                                                  {"mode", "bsp"},
                                                  {"workers", 3},
                                                  {"servers", 2},
                                                  {"epochs_done", 5},
                                                  {"epochs", 5},
                                                  {"best_test_accuracy", 0.375},
                                                  {"test_metric", "map"},
                                                  {"metric", nullptr},
                                                  {"best_metric", nullptr},
                                                  {"age_s", 10800.0},
                                                  {"bytes", *runs[0].bytes}}}));
  EXPECT_THAT(RenderRuns(runs, absl::Now()), HasSubstr(" mAP 37.50 % "));
}

TEST_F(Runs, BestOnesGoByTheMetricOfTheJob) {
  Begin("first", 3);
  End("first", "done",
      R"({"state": "done", "best_test_accuracy": 0.375,
          "metric": {"name": "perplexity", "better": "lower", "last": 30, "best": 21.375}})");
  const std::vector<ListedRun> runs = Find();
  EXPECT_THAT(RenderRuns(runs, absl::Now()), HasSubstr(" perplexity 21.38 "));
  const nlohmann::json list = nlohmann::json::parse(RunsJson(runs, absl::Now()));
  EXPECT_EQ(list[0].at("metric"), "perplexity");
  EXPECT_EQ(list[0].at("best_metric"), 21.375);
}

TEST(RenderRuns, FitsAHundredColumns) {
  ListedRun run;
  run.folder = "runs/" + std::string(60, 'n') + "\xc3\xa9-20250131-120000";
  run.state = "running";
  run.test_metric = "map";
  run.figures = {.mode = "softsync",
                 .workers = 65536,
                 .servers = 4096,
                 .epochs_done = 4'000'000'000u,
                 .epochs = 4'000'000'000u,
                 .best_test_accuracy = 1};
  run.begun = absl::UnixEpoch();
  run.bytes = uint64_t{1} << 50;
  const std::string table = RenderRuns({run}, absl::UnixEpoch() + absl::Hours(24 * 365 * 10));
  for (const absl::string_view line : absl::StrSplit(table, '\n', absl::SkipEmpty()))
    EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(table, ContainsRegex("\nn+\\.\\.\\.[0-9-]*0000 +running  softsync"));
  run.figures.epochs = run.figures.epochs_done = 3;
  run.bytes = 1;
  EXPECT_THAT(RenderRuns({run}, absl::UnixEpoch()), HasSubstr("-20250131-120000  running"));
}

TEST(RenderRuns, AgesHaveTheUnitThatFits) {
  ListedRun run;
  run.folder = "first";
  run.begun = absl::UnixEpoch();
  for (const auto& [age, text] : {std::pair(absl::Seconds(-5), "0 s"), std::pair(absl::Seconds(59), "59 s"),
                                  std::pair(absl::Minutes(59), "59 min"), std::pair(absl::Hours(47), "47 h"),
                                  std::pair(absl::Hours(50), "2 d")}) {
    EXPECT_THAT(RenderRuns({run}, absl::UnixEpoch() + age), HasSubstr(absl::StrCat(" ", text, "  ")));
  }
}

}  // namespace
}  // namespace slackline::cli::runs_test

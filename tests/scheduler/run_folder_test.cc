#include "scheduler/record/run_folder.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/job/job_file.h"
#include "scheduler/record/crc32c.h"
#include "scheduler/record/state_store.h"
#include "tests/common/tiny_disk.h"

namespace slackline::scheduler::run_folder_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "slackline-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Path() const { return root_ / "runs" / "one"; }
  static std::string Read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::filesystem::path root_;
  const absl::Time wall_ = absl::FromUnixSeconds(1700000000);
};

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
}

TEST(RunName, IsTheLastPartOfThePath) {
  EXPECT_EQ(RunName("/data/runs/first.1"), "first.1");
  EXPECT_EQ(RunName("/data/runs/first/"), "first");
  EXPECT_EQ(RunName("/"), "");
}

TEST_F(RunFolderTest, RefusesAPathThatIsNotUtf8) {
  const absl::Status refused = RunFolderWriter::Create(Path() + "/l\xe4ufe", job::Job(), wall_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("found bytes that are not UTF-8; allowed is"), refused.message().npos);
}

TEST_F(RunFolderTest, HoldsTheResolvedJob) {
  job::Job job;
  job.mutable_optimizer()->set_lr(0.125);
  ASSERT_TRUE(RunFolderWriter::Create(Path(), Resolve(job), wall_).ok());
  const auto read = ReadJobFile(Path() + "/job.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->optimizer().lr(), 0.125);
  EXPECT_EQ(read->training().epochs(), 5u);
}

TEST_F(RunFolderTest, RunThatGoesOnIsWrittenOn) {
  const job::Job job = Resolve(job::Job());
  Report report;
  EXPECT_EQ(RunFolderWriter::Reopen(Path(), job, wall_).status().code(), absl::StatusCode::kNotFound);
  {
    auto run = RunFolderWriter::Create(Path(), job, wall_);
    ASSERT_TRUE((*run)->WriteEvent("one", wall_).ok());
    report.time_s = 1;
    ASSERT_TRUE((*run)->Write(report, wall_).ok());
  }
  const std::string before = Read(Path() + "/metrics.csv");
  auto run = RunFolderWriter::Reopen(Path(), job, wall_ + absl::Seconds(9));
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->WriteEvent("two", wall_).ok());
  report.time_s = 2;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_THAT(Read(Path() + "/events.log"), testing::ContainsRegex("one\n.*two\n"));
  const std::string after = Read(Path() + "/metrics.csv");
  EXPECT_THAT(after, StartsWith(before));
  EXPECT_THAT(after.substr(before.size()), StartsWith("2.000,"));
}

TEST_F(RunFolderTest, ACopyOfTheJobAloneIsGoneOnWithToo) {
  const job::Job job = Resolve(job::Job());
  std::filesystem::create_directories(Path());
  std::ofstream(Path() + "/job.yaml") << ToYaml(job);
  auto run = RunFolderWriter::Reopen(Path(), job, wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->CutBack(1).ok());
  Report report;
  report.time_s = 2;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_THAT(Read(Path() + "/metrics.csv"), testing::ContainsRegex("^time_s,.*\n2.000,"));
}

TEST(StateStoreOnATinyDisk, OpensWithoutRoomAndSaysSoIfItCannot) {
  const TinyDisk disk("4m");
  if (!disk.there()) GTEST_SKIP() << "may not mount";
  const std::filesystem::path folder = disk.path() / "scheduler";
  state::Scheduler state;
  state.set_generation(7);
  ASSERT_TRUE((*StateStore::Open(folder))->Save(state).ok());
  disk.Fill();
  {
    // The room that the earlier process kept for it.
    const auto store = StateStore::Open(folder);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*(*store)->Load())->generation(), 7);
  }
  std::filesystem::remove(folder / "reserve");
  disk.Fill();
  const absl::Status full = StateStore::Open(folder).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("No space left on device"));
  disk.MakeRoom();
  EXPECT_EQ((*(*StateStore::Open(folder))->Load())->generation(), 7);
}

TEST_F(RunFolderTest, StateIsReadAsItWasSavedLast) {
  for (uint64_t life = 1; life <= 3; ++life) {
    auto store = StateStore::Open(root_ / "scheduler");
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(StateStore::Open(root_ / "scheduler").status().code(), absl::StatusCode::kAborted) << "one at a time";
    const auto before = (*store)->Load();
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_EQ(before->has_value(), life > 1);
    if (*before) {
      EXPECT_EQ((*before)->generation(), (life - 1) * 300);
    }
    state::Scheduler state;
    state.set_reason(std::string(100'000, 'x'));  // so that what was overwritten is given back now and then
    for (uint64_t i = 1; i <= 300; ++i) {
      state.set_generation((life - 1) * 300 + i);
      ASSERT_TRUE((*store)->Save(state).ok());
    }
  }
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / "scheduler")) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 60'000'000u) << "of 90 MB that were written";
}

TEST_F(RunFolderTest, SummaryReplacesTheOneBefore) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  RunSummary summary;
  summary.reason = "first";
  ASSERT_TRUE((*run)->WriteSummary(summary).ok());
  summary.reason = "second";
  ASSERT_TRUE((*run)->WriteSummary(summary).ok());
  EXPECT_EQ(Read(Path() + "/summary.json"), ToJson(summary));
  EXPECT_FALSE(std::filesystem::exists(Path() + "/summary.json.new"));
}

TEST_F(RunFolderTest, EpochsAreRowsAndWhatIsNotKnownIsEmpty) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  EpochFigures first, second;
  first.epoch = 1;
  first.end_s = first.train_s = 2.5;
  first.samples = first.samples_applied = 100;
  second.epoch = 2;
  second.end_s = 6;
  second.samples = 203;
  second.samples_applied = 180;
  second.train_s = 3;
  second.validation_s = 0.5;
  second.test_s = 0.25;
  second.loss = 0.5;
  second.accuracy = 0.75;
  second.test_loss = 0.625;
  second.test_accuracy = 0.7;
  second.top5_accuracy = 0.99;
  second.joules = 123.5;
  second.seconds = {.compute = 5, .data = 0.125, .wait = 1.5, .push = 0.75, .pull = 2};
  ASSERT_TRUE((*run)->WriteEpochs({first}).ok());
  ASSERT_TRUE((*run)->WriteEpochs({first, second}).ok());
  EXPECT_EQ(Read(Path() + "/epochs.csv"),
            "epoch,end_s,train_s,validation_s,test_s,loss,accuracy,test_loss,test_accuracy,top5_accuracy,joules,"
            "compute_s,data_s,wait_s,push_s,pull_s,samples,samples_applied\n"
            "1,2.500,2.500,0.000,0.000,,,,,,,0.000,0.000,0.000,0.000,0.000,100,100\n"
            "2,6.000,3.000,0.500,0.250,0.5,0.75,0.625,0.7,0.99,123.5,5.000,0.125,1.500,0.750,2.000,203,180\n");
}

TEST_F(RunFolderTest, EpochsOfAnOlderVersionAreWrittenAnewWithAllColumns) {
  const job::Job job = Resolve(job::Job());
  ASSERT_TRUE(RunFolderWriter::Create(Path(), job, wall_).ok());
  std::ofstream(Path() + "/epochs.csv") << "epoch,end_s,train_s,validation_s,test_s,loss,accuracy,test_loss,"
                                           "test_accuracy,top5_accuracy,joules\n1,2.500,2.500,0.000,0.000,,,,,,\n";
  auto run = RunFolderWriter::Reopen(Path(), job, wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  EpochFigures first, second;
  first.epoch = 1;
  second.epoch = 2;
  ASSERT_TRUE((*run)->WriteEpochs({first, second}).ok());
  std::istringstream rows(Read(Path() + "/epochs.csv"));
  int count = 0;
  for (std::string row; std::getline(rows, row); ++count) EXPECT_EQ(std::count(row.begin(), row.end(), ','), 17) << row;
  EXPECT_EQ(count, 3);
}

TEST_F(RunFolderTest, FiguresOfAScriptHaveColumns) {
  const job::Job job = Resolve(job::Job());
  const std::string header =
      "time_s,epoch,step,samples,loss,accuracy,test_accuracy,samples_per_second,staleness_mean,staleness_max,slack,"
      "live_workers";
  Report report;
  {
    auto run = RunFolderWriter::Create(Path(), job, wall_);
    ASSERT_TRUE((*run)->Write(report, wall_).ok());
    report.train_values = {{"perplexity", 21.5}};
    ASSERT_TRUE((*run)->Write(report, wall_).ok());
    report.test_values = {{"bleu", 0.25}};
    ASSERT_TRUE((*run)->Write(report, wall_).ok());
  }
  const std::string row = "0.000,0,0,0,,,,0.0,0,0,0,0";
  const std::string before =
      absl::StrCat(header, ",train/perplexity,test/bleu\n", row, ",,\n", row, ",21.5,\n", row, ",21.5,0.25\n");
  EXPECT_EQ(Read(Path() + "/metrics.csv"), before);
  auto run = RunFolderWriter::Reopen(Path(), job, wall_);
  report.train_values.clear();
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_EQ(Read(Path() + "/metrics.csv"), absl::StrCat(before, row, ",,0.25\n"));
  ASSERT_TRUE((*run)->CutBack(-1).ok());
  report.time_s = 1;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_EQ(Read(Path() + "/metrics.csv"),
            absl::StrCat(header, ",train/perplexity,test/bleu\n1.000,0,0,0,,,,0.0,0,0,0,0,,0.25\n"));
}

TEST_F(RunFolderTest, FiguresOfAScriptHaveNotAnyNumberOfColumns) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  for (size_t i = 0; i < 2 * MetricsFile::kNamedMax; ++i) {
    Report report;
    report.train_values = {{absl::StrCat("a", i), 1}};
    ASSERT_TRUE((*run)->Write(report, wall_).ok());
  }
  std::istringstream rows(Read(Path() + "/metrics.csv"));
  for (std::string row; std::getline(rows, row);) {
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), 11 + static_cast<int>(MetricsFile::kNamedMax)) << row;
  }
}

TEST_F(RunFolderTest, EpochsHaveColumnsForFiguresOfAScript) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  EpochFigures first, second;
  first.epoch = 1;
  second.epoch = 2;
  second.test_values = {{"perplexity", 20.25}};
  ASSERT_TRUE((*run)->WriteEpochs({first, second}).ok());
  const std::string text = Read(Path() + "/epochs.csv");
  EXPECT_THAT(text, HasSubstr(",samples_applied,test/perplexity\n1,"));
  EXPECT_THAT(text, HasSubstr(",0,0,\n2,"));
  EXPECT_THAT(text, testing::EndsWith(",0,0,20.25\n"));
}

TEST_F(RunFolderTest, EachReportIsARowAtOnce) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  Report report;
  report.time_s = 1.5;
  report.epoch = 1;
  report.step = 20;
  report.samples = 1280;
  report.samples_per_second = 853.3;
  report.live_workers = 2;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  report.loss = 0.5;
  report.accuracy = 0.75;
  report.test_accuracy = 0.875;
  report.staleness_mean = 1.25;
  report.staleness_max = 4;
  report.slack = 3;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_EQ(Read(Path() + "/metrics.csv"),
            "time_s,epoch,step,samples,loss,accuracy,test_accuracy,samples_per_second,staleness_mean,staleness_max,"
            "slack,live_workers\n"
            "1.500,1,20,1280,,,,853.3,0,0,0,2\n"
            "1.500,1,20,1280,0.5,0.75,0.875,853.3,1.25,4,3,2\n");
}

TEST_F(RunFolderTest, EventsHaveATime) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->WriteEvent("worker w-1 is dead", wall_).ok());
  EXPECT_THAT(Read(Path() + "/events.log"), StartsWith("2023-11-1"));
  EXPECT_THAT(Read(Path() + "/events.log"), HasSubstr(" worker w-1 is dead\n"));
}

TEST_F(RunFolderTest, AnotherRunIsNotOverwritten) {
  ASSERT_TRUE(RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_).ok());
  const absl::Status again = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("metrics.csv"));
}

TEST_F(RunFolderTest, FolderThatCannotBeMadeIsNamed) {
  std::ofstream(root_ / "file") << "x";
  const absl::Status status = RunFolderWriter::Create(root_ / "file" / "run", Resolve(job::Job()), wall_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("file/run"));
}

TEST_F(RunFolderTest, StalenessIsAHistogramAndAConfusionMatrixAPicture) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  const std::string curves = Path() + "/events.out.tfevents.1700000000.slackline";
  Report report;
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_THAT(Read(curves), HasSubstr("train/learning_rate"));
  EXPECT_THAT(Read(curves), testing::Not(HasSubstr("asynchrony/staleness\x2a"))) << "nothing was answered";
  EXPECT_THAT(Read(curves), testing::Not(HasSubstr("PNG")));
  report.staleness.Add(3);
  report.staleness.Add(100);
  report.confusion = {4, 0, 1, 3};
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_THAT(Read(curves), HasSubstr("asynchrony/staleness\x2a"));
  EXPECT_THAT(Read(curves), HasSubstr("test/confusion"));
  EXPECT_THAT(Read(curves), HasSubstr("PNG"));
}

TEST(DrawConfusion, CellsAreSmallerTheMoreThereAreAndTooManyAreNotDrawn) {
  EXPECT_EQ(DrawConfusion(std::vector<uint64_t>(4))->width, 48u);
  EXPECT_EQ(DrawConfusion(std::vector<uint64_t>(100))->height, 190u);
  EXPECT_EQ(DrawConfusion(std::vector<uint64_t>(64 * 64))->width, 192u);
  for (const size_t cells : {size_t{0}, size_t{3}, size_t{8}, size_t{65} * 65}) {
    EXPECT_FALSE(DrawConfusion(std::vector<uint64_t>(cells))) << cells;
  }
}

// A nearly full disk takes lines that fit into a file's last block, and no points of curves.
TEST_F(RunFolderTest, CurvesThatFailedCountAsBrokenUntilLaterPointsAreWritten) {
  auto run = RunFolderWriter::Create(Path(), Resolve(job::Job()), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  Report report;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE((*run)->Write(report, wall_).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit full = before;
  full.rlim_cur = std::filesystem::file_size(Path() + "/events.out.tfevents.1700000000.slackline");
  ASSERT_GT(full.rlim_cur, std::filesystem::file_size(Path() + "/metrics.csv") + 1000);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status failed = (*run)->Write(report, wall_), event = (*run)->WriteEvent("still there", wall_);
  const absl::Status still = (*run)->Flush();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("tfevents"));
  EXPECT_TRUE(event.ok()) << event;
  EXPECT_EQ(still, failed) << "nothing has been written since";
  EXPECT_TRUE((*run)->Write(report, wall_).ok());
  EXPECT_TRUE((*run)->Flush().ok());
}

TEST_F(RunFolderTest, FiguresOfAScriptAreCurves) {
  auto run = RunFolderWriter::Create(Path(), job::Job(), wall_);
  ASSERT_TRUE(run.ok()) << run.status();
  Report report;
  report.train_values = {{"perplexity", 25.5}, {"learning_rate", 0.125}};
  report.test_values = {{"bleu", 0.25}};
  ASSERT_TRUE((*run)->Write(report, wall_).ok());
  run->reset();
  for (const auto& file : std::filesystem::directory_iterator(Path())) {
    if (file.path().filename().string().find("tfevents") == std::string::npos) continue;
    const std::string curves = Read(file.path());
    EXPECT_THAT(curves, testing::AllOf(HasSubstr("train/perplexity"), HasSubstr("test/bleu")));
    EXPECT_EQ(curves.find("train/learning_rate"), curves.rfind("train/learning_rate")) << "the job's own only";
    return;
  }
  FAIL() << "no event file";
}

TEST_F(RunFolderTest, NoCurvesWhereTheJobWantsNone) {
  job::Job job;
  job.mutable_output()->set_tensorboard(false);
  ASSERT_TRUE(RunFolderWriter::Create(Path(), Resolve(job), wall_).ok());
  for (const auto& entry : std::filesystem::directory_iterator(Path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tfevents")));
  }
}

}  // namespace
}  // namespace slackline::scheduler::run_folder_test

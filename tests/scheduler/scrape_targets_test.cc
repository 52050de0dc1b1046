#include "scheduler/service/scrape_targets.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "common/text/version_text.h"
#include "scheduler/service/scheduler_metrics.h"

namespace slackline::scheduler::scrape_targets_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ScrapeTargetsTest : public testing::Test {
 protected:
  ScrapeTargetsTest() { std::filesystem::remove_all(run_); }
  ~ScrapeTargetsTest() override { std::filesystem::remove_all(run_); }

  nlohmann::json Read() const {
    std::ifstream in(run_ + "/prometheus/targets.json");
    return nlohmann::json::parse(in);
  }

  const std::string run_ = testing::TempDir() + "/scrape-targets-" + std::to_string(getpid());
};

TEST_F(ScrapeTargetsTest, TheFileIsWhatPrometheusReads) {
  ScrapeTargets targets(run_, "fashion", "host:1");
  ASSERT_TRUE(targets.Write({{"host:2", "ps-1", "server"}}).ok());
  nlohmann::json expected = nlohmann::json::parse(R"([
    {"targets": ["host:1"], "labels": {"slackline_job": "fashion", "process": "scheduler", "role": "scheduler"}},
    {"targets": ["host:2"], "labels": {"slackline_job": "fashion", "process": "ps-1", "role": "server"}}])");
  for (nlohmann::json& group : expected) group["labels"]["run"] = "scrape-targets-" + std::to_string(getpid());
  EXPECT_EQ(Read(), expected);
}

TEST_F(ScrapeTargetsTest, WhoIsGoneVanishesAndAtTheEndAllAre) {
  ScrapeTargets targets(run_, "fashion", "");
  ASSERT_TRUE(targets.Write({{"host:2", "ps-1", "server"}, {"host:3", "w-1", "worker"}}).ok());
  ASSERT_TRUE(targets.Write({{"host:3", "w-1", "worker"}}).ok());
  EXPECT_EQ(Read().size(), 1u);
  ASSERT_TRUE(targets.Clear().ok());
  EXPECT_EQ(Read(), nlohmann::json::array());
}

TEST_F(ScrapeTargetsTest, OnlyAChangeIsWritten) {
  ScrapeTargets targets(run_, "fashion", "host:1");
  ASSERT_TRUE(targets.Write({}).ok());
  std::filesystem::remove_all(run_);
  ASSERT_TRUE(targets.Write({}).ok());
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(ScrapeTargetsTest, AFolderOfAllRunsHasAFileOfThisOneUntilItsEnd) {
  const std::string shared = run_ + "-shared";
  const std::string file = SharedTargetsFile(shared, "fashion", run_);
  EXPECT_THAT(file, testing::MatchesRegex(shared + "/fashion-scrape-targets-[0-9]+-[0-9a-f]{8}.json"));
  EXPECT_NE(SharedTargetsFile(shared, "fashion", "/a/run"), SharedTargetsFile(shared, "fashion", "/b/run"));
  EXPECT_THAT(SharedTargetsFile(shared, "fashion", "/a/my run"), HasSubstr("/fashion-my_run-"));
  ScrapeTargets targets(run_, "fashion", "host:1", shared);
  ASSERT_TRUE(targets.Write({{"host:2", "ps-1", "server"}}).ok());
  std::ifstream in(file);
  EXPECT_EQ(nlohmann::json::parse(in), Read());
  EXPECT_EQ(Read().size(), 2u);
  ASSERT_TRUE(targets.Clear().ok());
  EXPECT_TRUE(std::filesystem::is_empty(shared));
  EXPECT_EQ(Read(), nlohmann::json::array());
  // Also where it was removed by somebody.
  EXPECT_TRUE(targets.Clear().ok());
  std::filesystem::remove_all(shared);
}

TEST_F(ScrapeTargetsTest, AFolderThatCannotBeWrittenIsUnavailable) {
  std::ofstream(run_) << "a file";
  ScrapeTargets targets(run_, "fashion", "host:1");
  EXPECT_TRUE(absl::IsUnavailable(targets.Write({})));
}

TEST(SchedulerMetricsTest, TheRunSaysWhatItTrains) {
  Metrics metrics;
  SchedulerMetrics series(metrics);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("slackline_job_info")));
  job::Job job;
  job.mutable_consistency()->set_mode(job::Consistency::BSP);
  job.mutable_model()->set_kind(job::Model::RESNET18);
  series.SetJob(job, "fashion-1");
  EXPECT_THAT(metrics.Text(),
              HasSubstr("slackline_job_info{mode=\"bsp\",model=\"resnet18\",run=\"fashion-1\",version=\"" +
                        VersionNumber() + "\"} 1"));
}

TEST(SchedulerMetricsTest, TheLossOfATestStaysUntilTheNextTest) {
  Metrics metrics;
  SchedulerMetrics series(metrics);
  Report report;
  report.test_loss = 0.5;
  report.learning_rate = 0.25;
  series.Publish(report);
  report.test_loss.reset();
  report.learning_rate = 0.125;
  series.Publish(report);
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_test_loss 0.5"));
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_learning_rate 0.125"));
}

TEST(SchedulerMetricsTest, AWorkerThatIsGoneHasNoClock) {
  Metrics metrics;
  SchedulerMetrics series(metrics);
  MembersView view;
  view.job_state = "training";
  view.clocks = {{"w-1", 3}, {"w-2", 4}};
  series.Publish(view);
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_worker_clock_steps{worker=\"w-1\"} 3"));
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_job_state_info{state=\"training\"} 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_job_state_info{state=\"starting\"} 0"));
  view.clocks = {{"w-2", 5}};
  series.Publish(view);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("w-1")));
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_worker_clock_steps{worker=\"w-2\"} 5"));
  view.clocks = {{"w-1", 6}};
  series.Publish(view);
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_worker_clock_steps{worker=\"w-1\"} 6"));
}

TEST(SchedulerMetricsTest, FiguresOfAScriptHaveSeriesByName) {
  Metrics metrics;
  SchedulerMetrics series(metrics);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("test_metric")));
  Report report;
  report.train_values = {{"perplexity", 25.5}};
  report.test_values = {{"perplexity", 20.5}};
  series.Publish(report);
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_train_metric{name=\"perplexity\"} 25.5"));
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_test_metric{name=\"perplexity\"} 20.5"));
  for (size_t i = 0; i < 2 * kMetricNamesMax; ++i) {
    report.test_values = {{absl::StrCat("at_", i), 1}};
    series.Publish(report);
  }
  EXPECT_THAT(metrics.Text(), HasSubstr("at_30"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("at_31")));
}

TEST(SchedulerMetricsTest, AJobWithoutAccuraciesHasNoSeriesOfThem) {
  Metrics metrics;
  SchedulerMetrics series(metrics);
  Report report;
  report.test_loss = 0.5;
  series.Publish(report);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("accuracy")));
  report.test_accuracy = 0.5;
  series.Publish(report);
  EXPECT_THAT(metrics.Text(), HasSubstr("slackline_scheduler_test_accuracy_ratio 0.5"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("train_accuracy")));
}

}  // namespace
}  // namespace slackline::scheduler::scrape_targets_test

// The jobs of a service as table, JSON, page, and targets for Prometheus.
#include "cli/service/jobs_view.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "absl/time/time.h"

namespace slackline::cli::jobs_view_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(1000);

wire::ListJobsReply Two() {
  wire::ListJobsReply jobs;
  wire::ServiceJob& runs = *jobs.add_jobs();
  runs.set_id(12);
  runs.set_name("<b>bold</b>");
  runs.set_owner("ada");
  runs.set_state(wire::SERVICE_JOB_RUNNING);
  runs.set_submitted_s(940);
  runs.mutable_figures()->set_mode("bsp");
  runs.mutable_figures()->set_workers(4);
  runs.mutable_figures()->set_epochs_done(1);
  runs.mutable_figures()->set_epochs(3);
  runs.mutable_figures()->set_metric("accuracy");
  runs.mutable_figures()->set_best(0.875);
  runs.mutable_figures()->set_bytes(2048);
  runs.mutable_needs()->set_gpus(2);
  runs.mutable_needs()->set_memory_bytes(uint64_t{4} << 30);
  for (const char* gpu : {"0", "3"}) runs.add_gpus(gpu);
  wire::ServiceJob& failed = *jobs.add_jobs();
  failed.set_id(3);
  failed.set_name("other");
  failed.set_owner("bob");
  failed.set_state(wire::SERVICE_JOB_FAILED);
  failed.set_reason("no data");
  failed.set_submitted_s(1005);
  jobs.set_unlisted(2);
  return jobs;
}

TEST(JobsView, TheTableHasFiguresAndSaysWhyAJobHasFailed) {
  EXPECT_EQ(RenderJobs(Two(), kNow),
            "job  name         owner  state    mode workers servers epochs best test gpus  memory   age    size\n"
            "12   <b>bold</b>  ada    running  bsp        4       -    1/3   87.50 %    2 4.0 GiB 1 min 2.0 KiB\n"
            "3    other        bob    failed   -          -       -      -         -    -       -   0 s       -\n"
            "job 3 is failed: no data\n"
            "2 other jobs not shown\n");
}

TEST(JobsView, JsonHasRawValuesAndNullForWhatIsNotKnown) {
  const nlohmann::json jobs = nlohmann::json::parse(JobsJson(Two(), kNow));
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["id"], 12);
  EXPECT_EQ(jobs[0]["best"], 0.875);
  EXPECT_EQ(jobs[0]["bytes"], 2048);
  EXPECT_EQ(jobs[0]["age_s"], 60);
  EXPECT_EQ(jobs[0]["gpus"], 2);
  EXPECT_EQ(jobs[0]["memory_bytes"], uint64_t{4} << 30);
  EXPECT_EQ(jobs[0]["gpu_names"], nlohmann::json({"0", "3"}));
  EXPECT_TRUE(jobs[0]["servers"].is_null());
  EXPECT_TRUE(jobs[0]["reason"].is_null());
  EXPECT_EQ(jobs[1]["reason"], "no data");
}

TEST(JobsView, NamesAreTextOnThePage) {
  const std::string page = JobsPage(Two(), kNow);
  EXPECT_THAT(page, HasSubstr("<td>&lt;b&gt;bold&lt;/b&gt;</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, HasSubstr("<td>no data</td>"));
}

TEST(JobsView, TargetsAreThoseOfRunningJobsWithTheirNumberAndOwner) {
  std::string root = fs::temp_directory_path() / "slackline-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  fs::create_directories(fs::path(root) / "prometheus");
  std::ofstream(fs::path(root) / "prometheus" / "targets.json")
      << R"([{"targets": ["host:1"], "labels": {"run": "run", "role": "server"}}, 7, {"targets": []}])";
  wire::ListJobsReply jobs = Two();
  for (wire::ServiceJob& job : *jobs.mutable_jobs()) job.set_run_folder(root);
  EXPECT_EQ(
      nlohmann::json::parse(TargetsOf(jobs)),
      nlohmann::json::parse(R"([{"targets": ["host:1"], "labels": {"run": "12", "role": "server", "owner": "ada"}}])"));
  fs::remove_all(root);
}

}  // namespace
}  // namespace slackline::cli::jobs_view_test

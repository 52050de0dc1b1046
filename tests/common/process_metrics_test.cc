#include "common/metrics/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/text/version_text.h"

namespace slackline::process_metrics_test {
namespace {

using ::testing::HasSubstr;

// The value of the series that begins a line with `series`; -1 where there is none.
double ValueOf(const Metrics& metrics, const std::string& series) {
  for (const absl::string_view line : absl::StrSplit(metrics.Text(), '\n')) {
    double value = 0;
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (parts.first == series && absl::SimpleAtod(parts.second, &value)) return value;
  }
  return -1;
}

TEST(ProcessMetrics, SayWhatTheSystemSays) {
  Metrics metrics;
  AddProcessSeries(metrics);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(ValueOf(metrics, "process_start_time_seconds"), now, 600);
  EXPECT_GT(ValueOf(metrics, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_LT(ValueOf(metrics, "process_resident_memory_bytes"), 1LL << 36);
  EXPECT_GE(ValueOf(metrics, "process_open_fds"), 3);
  EXPECT_GE(ValueOf(metrics, "process_max_fds"), ValueOf(metrics, "process_open_fds"));
  EXPECT_EQ(ValueOf(metrics, "slackline_build_info{version=\"" + VersionNumber() + "\"}"), 1);
}

TEST(ProcessMetrics, AreLookedUpWhenSomebodyAsks) {
  Metrics metrics;
  AddProcessSeries(metrics);
  const double files = ValueOf(metrics, "process_open_fds");
  const double cpu = ValueOf(metrics, "process_cpu_seconds_total");
  const int file = dup(STDERR_FILENO);
  EXPECT_EQ(ValueOf(metrics, "process_open_fds"), files + 1);
  close(file);
  while (ValueOf(metrics, "process_cpu_seconds_total") <= cpu) {
  }
}

TEST(ProcessMetrics, AllSeriesOfAProcessAreLabelled) {
  Metrics metrics(ProcessLabels("fashion", "ps-1", "server"));
  metrics.counter("slackline_test_steps_total", "Steps.").Add();
  EXPECT_THAT(metrics.Text(), HasSubstr("{process=\"ps-1\",role=\"server\",slackline_job=\"fashion\"} 1"));
}

TEST(DiskSeries, HaveTheFileSystemOfAFolder) {
  Metrics metrics;
  DiskSeries disk(metrics, "test", "snapshots");
  const std::string size = "slackline_test_disk_size_bytes{folder=\"snapshots\"}";
  EXPECT_EQ(ValueOf(metrics, size), 0);
  disk.Look("");
  disk.Look("/no/such/folder");
  EXPECT_EQ(ValueOf(metrics, size), 0);
  disk.Look(testing::TempDir());
  EXPECT_GT(ValueOf(metrics, size), 0);
  EXPECT_LE(ValueOf(metrics, "slackline_test_disk_free_bytes{folder=\"snapshots\"}"), ValueOf(metrics, size));
}

}  // namespace
}  // namespace slackline::process_metrics_test

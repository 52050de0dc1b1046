#include "scheduler/status/status_history.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace slackline::scheduler::status_history_test {
namespace {

wire::JobStatus Filled(const StatusHistory& history) {
  wire::JobStatus status;
  history.Fill(status);
  return status;
}

Report At(double time_s) {
  Report report;
  report.time_s = time_s;
  report.loss = 1 / (1 + time_s);
  return report;
}

TEST(Thinned, StaysWithinItsBoundAndKeepsTheFirstAndTheNewest) {
  Thinned<int> thinned;
  for (int i = 0; i < 172'800; ++i) {
    thinned.Add(i);
    const size_t kept = i % 997 == 0 ? thinned.values().size() : 0;
    ASSERT_LE(kept, kCurvePointsMax);
  }
  const std::vector<int> values = thinned.values();
  EXPECT_EQ(values.front(), 0);
  EXPECT_EQ(values.back(), 172'799);
  EXPECT_GE(values.size(), kCurvePointsMax / 2);
  // Evenly, but for the newest.
  for (size_t i = 2; i + 1 < values.size(); ++i) EXPECT_EQ(values[i] - values[i - 1], values[1] - values[0]);
}

TEST(StatusHistory, ACurveHasAllItsColumns) {
  StatusHistory history;
  history.Add(At(1));
  Report second = At(2);
  second.loss.reset();
  second.test_accuracy = 0.5;
  history.Add(second);
  const wire::JobStatus status = Filled(history);
  const wire::JobCurve& curve = status.curve();
  EXPECT_THAT(curve.time_s(), testing::ElementsAre(1, 2));
  EXPECT_EQ(curve.loss(0), 0.5);
  EXPECT_TRUE(std::isnan(curve.loss(1)));
  for (const auto& column : {curve.epoch(), curve.train_accuracy(), curve.samples_per_second(), curve.staleness_mean(),
                             curve.slack(), curve.live_workers()}) {
    EXPECT_EQ(column.size(), 2);
  }
  EXPECT_THAT(curve.test_time_s(), testing::ElementsAre(2));
  EXPECT_THAT(curve.test_accuracy(), testing::ElementsAre(0.5));
}

TEST(StatusHistory, ARunFolderIsReadAgain) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "status_history";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "metrics.csv") << "time_s,epoch,step,samples,loss,accuracy,test_accuracy,new_column,slack\n"
                                        << "1.000,1,10,100,2.25,0.25,,7,3\n"
                                        << "half a li\n"
                                        << "2.000,1,20,200,1.5,0.5,0.75,7,4\n";
  std::ofstream(folder / "events.log") << "2025-01-31 12:00:00.250 worker w-1 is there\n"
                                       << "garbage\n"
                                       << "2025-01-31 12:00:01.000 <script>alert(1)</script>\n";
  StatusHistory history;
  history.AddEvent("of before", absl::Now());
  history.Load(folder);
  history.Add(At(3));
  const wire::JobStatus status = Filled(history);
  EXPECT_THAT(status.curve().time_s(), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(status.curve().slack(), testing::ElementsAre(3, 4, 0));
  EXPECT_THAT(status.curve().test_accuracy(), testing::ElementsAre(0.75));
  ASSERT_EQ(status.events_size(), 2);
  EXPECT_EQ(status.events_total(), 2u);
  EXPECT_EQ(status.events(0).text(), "worker w-1 is there");
  EXPECT_EQ(status.events(1).unix_ms() - status.events(0).unix_ms(), 750);
}

TEST(StatusHistory, WithoutARunThereIsNothing) {
  StatusHistory history;
  history.Load("/nonexistent");
  EXPECT_EQ(Filled(history).curve().time_s_size(), 0);
}

TEST(StatusHistory, EventsAreBoundedAndCounted) {
  StatusHistory history;
  for (int i = 0; i < 1000; ++i) history.AddEvent(absl::StrCat("event ", i), absl::Now());
  const wire::JobStatus status = Filled(history);
  EXPECT_EQ(status.events_size(), static_cast<int>(kEventsShown));
  EXPECT_EQ(status.events_total(), 1000u);
  EXPECT_EQ(status.events(status.events_size() - 1).text(), "event 999");
}

TEST(StatusHistory, SaysForHowLongTheSlackIsAtTheBound) {
  StatusHistory history;
  const auto add = [&](double time_s, uint64_t slack, uint64_t live_workers) {
    Report report = At(time_s);
    report.slack = slack;
    report.staleness_bound = 4;
    report.live_workers = live_workers;
    history.Add(report);
  };
  add(1, 3, 2);
  EXPECT_FALSE(Filled(history).asynchrony().has_at_bound_s());
  add(2, 4, 2);
  add(12, 5, 2);
  EXPECT_EQ(Filled(history).asynchrony().at_bound_s(), 10);
  add(13, 3, 2);
  EXPECT_FALSE(Filled(history).asynchrony().has_at_bound_s());
}

}  // namespace
}  // namespace slackline::scheduler::status_history_test

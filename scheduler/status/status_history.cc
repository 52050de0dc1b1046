#include "scheduler/status/status_history.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/text/utf8.h"

namespace slackline::scheduler {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr char kEventTime[] = "%Y-%m-%d %H:%M:%E3S";
constexpr size_t kEventTimeSize = sizeof("2025-01-31 12:00:00.000") - 1;

// Cells of a table by the names in its first line.
class Row {
 public:
  Row(const std::map<std::string, size_t>& columns, absl::string_view line)
      : columns_(columns), cells_(absl::StrSplit(line, ',')) {}

  // Not a number where there is none.
  double Number(const std::string& column) const {
    const auto found = columns_.find(column);
    double value = 0;
    const bool there = found != columns_.end() && found->second < cells_.size();
    return there && absl::SimpleAtod(cells_[found->second], &value) ? value : kUnknown;
  }

 private:
  const std::map<std::string, size_t>& columns_;
  const std::vector<absl::string_view> cells_;
};

}  // namespace

void StatusHistory::Load(const std::string& run_folder) {
  absl::MutexLock lock(&mutex_);
  points_ = {};
  evaluations_ = {};
  events_.clear();
  event_count_ = 0;
  LoadCurve(run_folder + "/metrics.csv");
  LoadEvents(run_folder + "/events.log");
}

void StatusHistory::LoadCurve(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::map<std::string, size_t> columns;
  if (!std::getline(in, line)) return;
  for (const absl::string_view name : absl::StrSplit(line, ',')) columns.emplace(std::string(name), columns.size());
  while (std::getline(in, line)) {
    const Row row(columns, line);
    const double time_s = row.Number("time_s");
    if (std::isnan(time_s)) continue;
    points_.Add({time_s, row.Number("epoch"), row.Number("loss"), row.Number("accuracy"),
                 row.Number("samples_per_second"), row.Number("staleness_mean"), row.Number("slack"),
                 row.Number("live_workers")});
    const double test = row.Number("test_accuracy");
    if (!std::isnan(test)) evaluations_.Add({time_s, test});
    latest_s_ = time_s;
  }
}

void StatusHistory::LoadEvents(const std::string& file) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    absl::Time at;
    std::string wrong;
    if (line.size() <= kEventTimeSize) continue;
    if (!absl::ParseTime(kEventTime, line.substr(0, kEventTimeSize), absl::LocalTimeZone(), &at, &wrong)) continue;
    AddEventLocked(absl::string_view(line).substr(kEventTimeSize + 1), at);
  }
}

void StatusHistory::Add(const Report& report) {
  absl::MutexLock lock(&mutex_);
  points_.Add({report.time_s, static_cast<double>(report.epoch), report.loss.value_or(kUnknown),
               report.accuracy.value_or(kUnknown), report.samples_per_second, report.staleness_mean,
               static_cast<double>(report.slack), static_cast<double>(report.live_workers)});
  if (report.test_accuracy) evaluations_.Add({report.time_s, *report.test_accuracy});
  // A worker alone is never ahead of anybody.
  const bool at_bound = report.staleness_bound && report.slack >= *report.staleness_bound && report.live_workers > 1;
  if (!at_bound) at_bound_since_s_.reset();
  if (at_bound && !at_bound_since_s_) at_bound_since_s_ = report.time_s;
  latest_s_ = report.time_s;
}

void StatusHistory::AddEvent(absl::string_view event, absl::Time wall_time) {
  absl::MutexLock lock(&mutex_);
  AddEventLocked(event, wall_time);
}

void StatusHistory::AddEventLocked(absl::string_view event, absl::Time wall_time) {
  ++event_count_;
  events_.push_back({wall_time, ValidText(event)});
  if (events_.size() > kEventsShown) events_.pop_front();
}

void StatusHistory::Fill(wire::JobStatus& status) const {
  absl::MutexLock lock(&mutex_);
  wire::JobCurve& curve = *status.mutable_curve();
  for (const Point& point : points_.values()) {
    curve.add_time_s(point.time_s);
    curve.add_epoch(point.epoch);
    curve.add_loss(point.loss);
    curve.add_train_accuracy(point.accuracy);
    curve.add_samples_per_second(point.samples_per_second);
    curve.add_staleness_mean(point.staleness_mean);
    curve.add_slack(point.slack);
    curve.add_live_workers(point.live_workers);
  }
  for (const Evaluation& evaluation : evaluations_.values()) {
    curve.add_test_time_s(evaluation.time_s);
    curve.add_test_accuracy(evaluation.accuracy);
  }
  for (const Event& event : events_) {
    wire::EventView& view = *status.add_events();
    view.set_unix_ms(absl::ToUnixMillis(event.at));
    view.set_text(event.text);
  }
  status.set_events_total(event_count_);
  if (at_bound_since_s_) {
    status.mutable_asynchrony()->set_at_bound_s(std::max(0.0, latest_s_ - *at_bound_since_s_));
  }
}

}  // namespace slackline::scheduler

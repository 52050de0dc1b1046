#include "scheduler/watch/stall_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/event_log.h"

namespace slackline::scheduler {
namespace {

constexpr double kMedianStepsMax = 20;
// Expulsions of one worker, while the job trains nothing.
constexpr uint32_t kInVainMax = 3;
// A worker that waits for servers is given more time: a long pull is no stall.
constexpr double kWaitStalls = 10;
constexpr absl::Duration kWaitLeast = absl::Minutes(1);
// The largest timeouts.stall_ms.
constexpr absl::Duration kStallMax = absl::Hours(24);

}  // namespace

absl::Duration StallWatch::Allowed(const wire::WorkerProgress& progress) const {
  const absl::Duration step = absl::Milliseconds(std::clamp(progress.step_ms_median(), 0.0, 1e12));
  return std::max({timeouts_.stall, timeouts_.task_lease, kMedianStepsMax * step});
}

absl::Duration StallWatch::WaitMax() const {
  return std::max(kWaitLeast, kWaitStalls * std::max(timeouts_.stall, timeouts_.task_lease));
}

std::optional<size_t> StallWatch::HoldsUp(absl::Span<const uint64_t> clocks, uint64_t samples, absl::Time now) {
  if (clocks.size() < 2 || samples != waiting_samples_) waiting_since_ = now;
  waiting_samples_ = samples;
  if (now - waiting_since_ <= WaitMax()) return std::nullopt;
  const auto slowest = std::min_element(clocks.begin(), clocks.end());
  if (std::count(clocks.begin(), clocks.end(), *slowest) > 1) return std::nullopt;
  waiting_since_ = now;
  return slowest - clocks.begin();
}

std::string StallWatch::Reason(absl::Duration idle, absl::Duration allowed) {
  const absl::Duration enough = std::min(kStallMax, absl::Ceil(2 * idle, absl::Seconds(1)));
  return absl::StrCat("its heartbeats come, but it has made no step for ", Readable(idle), "; allowed is ",
                      Readable(allowed),
                      ". If its steps take so long, set timeouts.stall_ms: ", absl::ToInt64Milliseconds(enough),
                      "; else its log says what it waits for");
}

std::optional<std::string> StallWatch::Expelled(const std::string& worker, uint64_t samples) {
  if (samples != samples_) in_vain_.clear();
  samples_ = samples;
  if (++in_vain_[worker] < kInVainMax) return std::nullopt;
  return absl::StrCat(Called("worker", worker), " was expelled ", kInVainMax,
                      " times in a row, and nothing was trained in between");
}

}  // namespace slackline::scheduler

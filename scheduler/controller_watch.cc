// What the scheduler makes of how training goes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/controller.h"

namespace slackline::scheduler {
namespace {

// The bound of ssp is decided on no less than this: time, and steps of each live worker.
constexpr absl::Duration kBoundInterval = absl::Seconds(2);
constexpr uint64_t kBoundSteps = 8;

}  // namespace

void Controller::WatchBound(absl::Time now) {
  if (!bound_) return;
  const ProgressTotals& totals = progress_.totals();
  const ProgressTotals& before = bound_watched_.totals;
  bound_watched_.slack_max = std::max(bound_watched_.slack_max, progress_.TakeSlackPeak());
  StalenessBound::Interval seen;
  seen.live_workers = membership_.CountLive();
  if (now - bound_watched_.at < kBoundInterval) return;
  if (totals.steps - before.steps < kBoundSteps * std::max<uint64_t>(1, seen.live_workers)) return;
  seen.compute_seconds = totals.compute_seconds - before.compute_seconds;
  seen.wait_seconds = totals.wait_seconds - before.wait_seconds;
  if (const uint64_t answers = totals.staleness_answers - before.staleness_answers; answers > 0) {
    seen.staleness_mean =
        static_cast<double>(totals.staleness_sum - before.staleness_sum) / static_cast<double>(answers);
  }
  seen.slack_max = bound_watched_.slack_max;
  bound_watched_ = {.at = now, .totals = totals, .slack_max = 0};
  ChangeBound(bound_->Observe(seen));
}

void Controller::ChangeBound(const std::optional<StalenessBound::Change>& change) {
  if (!change) return;
  ++bound_changes_;
  events_.Add(absl::StrCat("the bound of ssp goes from ", change->from, " to ", change->to, ": ", change->reason));
  MembershipActions actions;
  membership_.SendAgain(actions);
  Apply(actions);
}

}  // namespace slackline::scheduler

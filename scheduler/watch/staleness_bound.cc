#include "scheduler/watch/staleness_bound.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace slackline::scheduler {
namespace {

// Fractions of the workers' time. Between the two the bound stays.
constexpr double kWaitMuch = 0.2;
constexpr double kWaitLittle = 0.05;
// Loosening has helped when the waiting fell by so much of itself.
constexpr double kHelped = 0.1;
// So many intervals it is not tried again after it did not help.
constexpr uint32_t kHold = 10;

std::string Percent(double fraction) { return absl::StrFormat("%.0f %%", 100 * fraction); }

}  // namespace

std::optional<StalenessBound::Change> StalenessBound::MoveTo(uint64_t bound, std::string reason) {
  bound = std::clamp(bound, config_.least, config_.most);
  if (bound == bound_) return std::nullopt;
  return Change{std::exchange(bound_, bound), bound, std::move(reason)};
}

std::optional<StalenessBound::Change> StalenessBound::Observe(const Interval& interval) {
  const double seconds = interval.compute_seconds + interval.wait_seconds;
  if (!config_.automatic || tightened_ || !std::isfinite(seconds) || seconds <= 0 || interval.live_workers < 2) {
    return std::nullopt;
  }
  const double wait = interval.wait_seconds / seconds;
  if (hold_ > 0) --hold_;
  if (const std::optional<Before> before = std::exchange(loosened_, std::nullopt);
      before && wait > (1 - kHelped) * before->wait_fraction) {
    hold_ = kHold;
    return MoveTo(before->bound,
                  absl::StrCat("workers wait ", Percent(wait), " of their time, with a bound of ", before->bound,
                               " it was ", Percent(before->wait_fraction), ": loosening it did not help"));
  }
  if (wait > kWaitMuch && interval.slack_max >= bound_ && hold_ == 0) {
    const Before before = {bound_, wait};
    std::optional<Change> change =
        MoveTo(bound_ + std::max<uint64_t>(1, bound_ / 2),
               absl::StrCat("workers wait ", Percent(wait), " of their time, and some are at the bound"));
    if (change) loosened_ = before;
    return change;
  }
  // When all are equally fast, one push of each other worker comes between a pull and the push made from it.
  const auto others = static_cast<double>(interval.live_workers - 1);
  if (wait < kWaitLittle && interval.staleness_mean > others && bound_ > config_.least) {
    return MoveTo(bound_ - 1, absl::StrFormat("workers wait only %s of their time, and gradients are %.1f versions "
                                              "stale; %.0f is what equally fast workers have",
                                              Percent(wait), interval.staleness_mean, others));
  }
  return std::nullopt;
}

std::optional<StalenessBound::Change> StalenessBound::Tighten(const std::string& reason) {
  tightened_ = true;
  return MoveTo(config_.least, reason);
}

}  // namespace slackline::scheduler

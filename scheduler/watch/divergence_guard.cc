#include "scheduler/watch/divergence_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace slackline::scheduler {

std::optional<std::string> DivergenceGuard::Observe(const Seen& seen) {
  if (seen.samples == 0) return std::nullopt;
  const bool norm_outside = config_.gradient_norm_max > 0 && seen.gradient_norm_max > config_.gradient_norm_max;
  std::optional<std::string> alarm;
  if (norm_outside && !std::exchange(norm_outside_, norm_outside)) {
    alarm = absl::StrFormat("a gradient has the norm %.4g, guard.gradient_norm_max is %.4g", seen.gradient_norm_max,
                            config_.gradient_norm_max);
  }
  norm_outside_ = norm_outside;

  loss_sum_ += seen.loss_sum;
  samples_ += seen.samples_with_loss;
  if (samples_ < config_.window_samples) return alarm;
  const double mean = std::exchange(loss_sum_, 0) / static_cast<double>(std::exchange(samples_, 0));
  const std::string mistake = LossMistake(mean);
  if (!mistake.empty() && !loss_outside_) alarm = mistake;
  loss_outside_ = !mistake.empty();
  best_mean_ = best_mean_ ? std::min(*best_mean_, mean) : mean;
  return alarm;
}

std::string DivergenceGuard::LossMistake(double mean) const {
  if (config_.loss_max > 0 && mean > config_.loss_max) {
    return absl::StrFormat("the mean loss is %.4g, guard.loss_max is %.4g", mean, config_.loss_max);
  }
  if (config_.loss_factor > 0 && best_mean_ && mean > config_.loss_factor * *best_mean_) {
    return absl::StrFormat("the mean loss is %.4g, %.3g times the smallest one (%.4g); guard.loss_factor is %.4g", mean,
                           mean / *best_mean_, *best_mean_, config_.loss_factor);
  }
  return "";
}

}  // namespace slackline::scheduler

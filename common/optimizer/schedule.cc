#include "common/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace slackline {
namespace {

double Fraction(uint64_t samples, uint64_t whole) {
  return samples < whole ? static_cast<double>(samples) / static_cast<double>(whole) : 1.0;
}

double WarmupFactor(const ScheduleConfig& config, uint64_t samples) {
  return config.warmup_samples == 0 ? 1.0 : Fraction(samples, config.warmup_samples);
}

double StepFactor(const ScheduleConfig& config, uint64_t samples) {
  const uint64_t reductions = samples / std::max<uint64_t>(config.every_samples, 1);
  return std::pow(config.gamma, static_cast<double>(reductions));
}

double CosineFactor(const ScheduleConfig& config, uint64_t samples) {
  const double half_wave = (1 + std::cos(std::numbers::pi * Fraction(samples, config.total_samples))) / 2;
  return config.final_fraction + (1 - config.final_fraction) * half_wave;
}

double KindFactor(const ScheduleConfig& config, uint64_t samples) {
  switch (config.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kStep:
      return StepFactor(config, samples);
    case ScheduleKind::kCosine:
      return CosineFactor(config, samples);
  }
  return 1;
}

}  // namespace

double ScaledScheduleFactor(const ScheduleConfig& config, uint64_t samples_applied, double batches) {
  return (1 + (batches - 1) * WarmupFactor(config, samples_applied)) * KindFactor(config, samples_applied);
}

double ScheduleFactor(const ScheduleConfig& config, uint64_t samples_applied) {
  return WarmupFactor(config, samples_applied) * KindFactor(config, samples_applied);
}

}  // namespace slackline

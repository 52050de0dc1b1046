// The learning rate over time. Time is the number of samples applied to the shard, so that it means the same for any
// number of workers.
#pragma once

#include <cstdint>

namespace slackline {

enum class ScheduleKind {
  kConstant,
  // gamma^floor(samples / every_samples); torch.optim.lr_scheduler.StepLR.
  kStep,
  // Falls from 1 to final_fraction along half a cosine over total_samples, then stays at final_fraction;
  // torch.optim.lr_scheduler.CosineAnnealingLR.
  kCosine,
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  // Number of samples of the warm-up; 0 means no warm-up. During the warm-up the factor also rises linearly from 0 to
  // 1. The warm-up multiplies and does not delay: step and cosine count from the first sample.
  uint64_t warmup_samples = 0;
  // kStep only; at least 1.
  uint64_t every_samples = 1;
  // kStep only.
  double gamma = 0.1;
  // kCosine only.
  double final_fraction = 0;
  // kCosine only; at least 1.
  uint64_t total_samples = 1;
};

// Linear scaling: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017. Returns the factor
// for a step on `batches` times the batch that the learning rate is meant for. The factor is `batches` times as large,
// and the warm-up rises from 1 instead of 0, so that a single batch has no warm-up.
double ScaledScheduleFactor(const ScheduleConfig& config, uint64_t samples_applied, double batches);

// Returns the factor of the learning rate for a step that is taken after `samples_applied` samples; 0..1.
double ScheduleFactor(const ScheduleConfig& config, uint64_t samples_applied);

}  // namespace slackline

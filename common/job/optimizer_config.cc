#include "common/job/optimizer_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"

namespace slackline {
namespace {

uint64_t Samples(double epochs, uint64_t samples_per_epoch) {
  return static_cast<uint64_t>(std::llround(epochs * static_cast<double>(samples_per_epoch)));
}

ScheduleKind Kind(job::Schedule::Kind kind) {
  switch (kind) {
    case job::Schedule::CONSTANT:
      return ScheduleKind::kConstant;
    case job::Schedule::STEP:
      return ScheduleKind::kStep;
    case job::Schedule::COSINE:
      return ScheduleKind::kCosine;
  }
  return ScheduleKind::kConstant;
}

ScheduleConfig MakeScheduleConfig(const job::Job& job, uint64_t samples_per_epoch) {
  const job::Schedule& schedule = job.optimizer().schedule();
  return {
      .kind = Kind(schedule.kind()),
      .warmup_samples = Samples(schedule.warmup_epochs(), samples_per_epoch),
      .every_samples = std::max<uint64_t>(Samples(schedule.every_epochs(), samples_per_epoch), 1),
      .gamma = schedule.gamma(),
      .final_fraction = schedule.final_fraction(),
      .total_samples = std::max<uint64_t>(job.training().epochs() * samples_per_epoch, 1),
  };
}

DelayCompensationConfig MakeDelayCompensation(const job::Consistency& consistency) {
  using Kind = DelayCompensationConfig::Kind;
  if (consistency.delay_compensation() == job::DelayCompensation::NONE) return {};
  const bool adaptive = consistency.delay_compensation() == job::DelayCompensation::ADAPTIVE;
  const double otherwise =
      adaptive ? DelayCompensationConfig::kLambdaAdaptive : DelayCompensationConfig::kLambdaConstant;
  return {
      .kind = adaptive ? Kind::kAdaptive : Kind::kConstant,
      .lambda = consistency.dc_lambda() > 0 ? consistency.dc_lambda() : otherwise,
      .mean_square = consistency.dc_mean_square(),
  };
}

std::vector<GroupConfig> MakeGroups(const job::Optimizer& optimizer) {
  std::vector<GroupConfig> groups;
  for (const job::ParameterGroup& group : optimizer.groups()) {
    groups.push_back({.lr_factor = group.lr_factor(),
                      .weight_decay = group.weight_decay() < 0 ? optimizer.weight_decay() : group.weight_decay()});
  }
  return groups;
}

}  // namespace

bool KeepsDirection(const job::Optimizer& optimizer) {
  return FactsOf(optimizer).has_moments ? optimizer.beta1() > 0 : optimizer.momentum() > 0;
}

OptimizerConfig MakeOptimizerConfig(const job::Job& job, uint64_t samples_per_epoch) {
  const job::Optimizer& optimizer = job.optimizer();
  const bool corrected = optimizer.momentum_correction() == job::MomentumCorrection::ASYNCHRONY;
  return {
      .kind = FactsOf(optimizer).kind,
      .lr = optimizer.lr(),
      .momentum = optimizer.momentum(),
      .momentum_correction = corrected ? MomentumCorrection::kAsynchrony : MomentumCorrection::kNone,
      .nesterov = optimizer.nesterov(),
      .weight_decay = optimizer.weight_decay(),
      .beta1 = optimizer.beta1(),
      .beta2 = optimizer.beta2(),
      .epsilon = optimizer.epsilon(),
      .clip_norm = optimizer.clip_norm(),
      .delay_compensation = MakeDelayCompensation(job.consistency()),
      .aggregation = {.kind = static_cast<AggregationConfig::Kind>(job.consistency().aggregation()),
                      .trim = job.consistency().trim()},
      .scaling = optimizer.scaling() == job::LrScaling::LINEAR ? LrScaling::kLinear : LrScaling::kNone,
      // Its time is samples applied, of which an epoch of local training has so many more.
      .schedule = MakeScheduleConfig(job, samples_per_epoch * PassesOfPush(job)),
      .groups = MakeGroups(optimizer),
      .ema = optimizer.ema(),
      .predicts = PredictsWeights(job),
      .window = job.wire().window(),
  };
}

}  // namespace slackline

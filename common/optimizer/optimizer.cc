#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace slackline {
namespace {

std::vector<absl::string_view> SgdArrays(const OptimizerConfig& config) {
  if (config.momentum == 0) return {};
  return {"momentum_buffer"};
}

StepCoefficients SgdCoefficientsOf(const OptimizerConfig& /*config*/, const StepSettings& settings) {
  return {.sgd = {.lr = static_cast<float>(settings.lr),
                  .momentum = static_cast<float>(settings.momentum),
                  .weight_decay = static_cast<float>(settings.weight_decay)},
          .adam = {}};
}

void StepSgd(const OptimizerConfig& config, const StepCoefficients& coefficients, const Block& block,
             const BlockOfArrays& arrays) {
  if (config.momentum == 0) {
    SgdStep(coefficients.sgd, block);
  } else if (config.nesterov) {
    NesterovStep(coefficients.sgd, block, arrays[0]);
  } else {
    MomentumStep(coefficients.sgd, block, arrays[0]);
  }
}

std::vector<absl::string_view> AdamArrays(const OptimizerConfig& /*config*/) { return {"exp_avg", "exp_avg_sq"}; }

StepCoefficients AdamCoefficientsOf(const OptimizerConfig& config, const StepSettings& settings) {
  const double correction1 = 1 - std::pow(config.beta1, static_cast<double>(settings.step));
  const double root_correction2 = std::sqrt(1 - std::pow(config.beta2, static_cast<double>(settings.step)));
  return {.sgd = {},
          .adam = {.step_size = static_cast<float>(settings.lr * root_correction2 / correction1),
                   .one_minus_beta1 = static_cast<float>(1 - config.beta1),
                   .beta2 = static_cast<float>(config.beta2),
                   .one_minus_beta2 = static_cast<float>(1 - config.beta2),
                   .epsilon = static_cast<float>(config.epsilon * root_correction2),
                   .weight_decay = static_cast<float>(settings.weight_decay),
                   .keep = 1.0f}};
}

StepCoefficients AdamWCoefficientsOf(const OptimizerConfig& config, const StepSettings& settings) {
  StepCoefficients coefficients = AdamCoefficientsOf(config, settings);
  coefficients.adam.weight_decay = 0.0f;
  coefficients.adam.keep = static_cast<float>(1 - settings.lr * settings.weight_decay);
  return coefficients;
}

void StepAdam(const OptimizerConfig& /*config*/, const StepCoefficients& coefficients, const Block& block,
              const BlockOfArrays& arrays) {
  AdamStep(coefficients.adam, block, {arrays[0], arrays[1]});
}

constexpr OptimizerFacts kOptimizers[] = {
    {.kind = OptimizerKind::kSgd,
     .name = "sgd",
     .has_momentum = true,
     .arrays = SgdArrays,
     .coefficients = SgdCoefficientsOf,
     .step = StepSgd},
    {.kind = OptimizerKind::kAdam,
     .name = "adam",
     .has_moments = true,
     .arrays = AdamArrays,
     .coefficients = AdamCoefficientsOf,
     .step = StepAdam},
    {.kind = OptimizerKind::kAdamW,
     .name = "adamw",
     .has_moments = true,
     .arrays = AdamArrays,
     .coefficients = AdamWCoefficientsOf,
     .step = StepAdam},
};

CompensationCoefficients Compensation(const DelayCompensationConfig& config) {
  return {
      .lambda = static_cast<float>(config.lambda),
      .mean_square = static_cast<float>(config.mean_square),
      .one_minus_mean_square = static_cast<float>(1 - config.mean_square),
      .epsilon = static_cast<float>(DelayCompensationConfig::kEpsilon),
  };
}

}  // namespace

size_t AggregationConfig::LeftOut(size_t pushes) const {
  if (kind == Kind::kMean || pushes == 0) return 0;
  const size_t most = (pushes - 1) / 2;
  if (kind == Kind::kMedian) return most;
  // The product of 0.1 and 30 may be rounded to a little more than 3.
  constexpr double kRounding = 1e-9;
  return std::min(most, static_cast<size_t>(std::ceil(trim * static_cast<double>(pushes) - kRounding)));
}

absl::Span<const OptimizerFacts> AllOptimizers() { return kOptimizers; }

const OptimizerFacts& FactsOf(OptimizerKind kind) {
  const OptimizerFacts* found = nullptr;
  for (const OptimizerFacts& facts : kOptimizers) {
    if (facts.kind == kind) found = &facts;
  }
  SLACKLINE_CHECK(found != nullptr);
  return *found;
}

Optimizer::Optimizer(const OptimizerConfig& config)
    : config_(config),
      facts_(FactsOf(config.kind)),
      arrays_(facts_.arrays(config)),
      compensation_(Compensation(config.delay_compensation)) {
  if (config.delay_compensation.kind == DelayCompensationConfig::Kind::kAdaptive) arrays_.push_back("dc_mean_square");
  SLACKLINE_CHECK(arrays_.size() <= kOptimizerArraysMax);
}

void Optimizer::BeginStep(const Step& step) {
  ++steps_;
  staleness_mean_ += (step.staleness - staleness_mean_) / static_cast<double>(std::min(steps_, kStalenessSteps));
  SLACKLINE_CHECK(step.group_lrs.empty() || step.group_lrs.size() == config_.groups.size());
  own_ = CoefficientsAt(step.lr, config_.weight_decay);
  groups_.clear();
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    const GroupConfig& group = config_.groups[i];
    const double lr = step.group_lrs.empty() ? step.lr * group.lr_factor : step.group_lrs[i];
    groups_.push_back(CoefficientsAt(lr, group.weight_decay));
  }
}

StepCoefficients Optimizer::CoefficientsAt(double lr, double weight_decay) const {
  return facts_.coefficients(config_, {.lr = lr, .weight_decay = weight_decay, .momentum = momentum(), .step = steps_});
}

double Optimizer::momentum() const {
  if (config_.momentum_correction == MomentumCorrection::kNone) return config_.momentum;
  return std::max(0.0, config_.momentum - staleness_mean_ / (staleness_mean_ + 1));
}

void Optimizer::CompensateBlock(StaleBlock block, const BlockOfArrays& arrays) const {
  if (config_.delay_compensation.kind == DelayCompensationConfig::Kind::kAdaptive) {
    if (block.weights_then == nullptr) block.weights_then = block.weights;
    CompensateAdaptive(compensation_, block, arrays[arrays_.size() - 1]);
  } else if (block.weights_then != nullptr) {
    Compensate(compensation_, block);
  } else {
    Scale(block.elements, block.factor, block.gradient, block.out);
  }
}

void Optimizer::StepBlock(absl::Span<const float> gradient, absl::Span<float> weights, const BlockOfArrays& arrays,
                          std::optional<uint32_t> group) const {
  SLACKLINE_CHECK(gradient.size() == weights.size() && (!group || *group < groups_.size()));
  const Block block{.elements = weights.size(), .gradient = gradient.data(), .weights = weights.data()};
  facts_.step(config_, group ? groups_[*group] : own_, block, arrays);
}

OptimizerState::OptimizerState(const OptimizerConfig& config, uint64_t elements)
    : optimizer_(config), elements_(elements) {
  for (size_t i = 0; i < optimizer_.arrays().size(); ++i) {
    arrays_.push_back(AllocateAlignedFloats(elements_));
    std::fill_n(arrays_.back().get(), elements_, 0.0f);
  }
}

void OptimizerState::StepBlock(uint64_t begin, absl::Span<const float> gradient, absl::Span<float> weights) {
  SLACKLINE_CHECK(begin + weights.size() <= elements_);
  BlockOfArrays block = {};
  for (size_t i = 0; i < arrays_.size(); ++i) block[i] = arrays_[i].get() + begin;
  optimizer_.StepBlock(gradient, weights, block);
}

}  // namespace slackline

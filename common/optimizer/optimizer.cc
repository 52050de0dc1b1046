#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace slackline {
namespace {

SgdCoefficients Sgd(double weight_decay, double lr, double momentum) {
  return {
      .lr = static_cast<float>(lr),
      .momentum = static_cast<float>(momentum),
      .weight_decay = static_cast<float>(weight_decay),
  };
}

// `step` counts from 1.
AdamCoefficients Adam(const OptimizerConfig& config, double weight_decay, double lr, uint64_t step) {
  const bool decoupled = config.kind == OptimizerKind::kAdamW;
  const double correction1 = 1 - std::pow(config.beta1, static_cast<double>(step));
  const double root_correction2 = std::sqrt(1 - std::pow(config.beta2, static_cast<double>(step)));
  return {
      .step_size = static_cast<float>(lr * root_correction2 / correction1),
      .one_minus_beta1 = static_cast<float>(1 - config.beta1),
      .beta2 = static_cast<float>(config.beta2),
      .one_minus_beta2 = static_cast<float>(1 - config.beta2),
      .epsilon = static_cast<float>(config.epsilon * root_correction2),
      .weight_decay = decoupled ? 0.0f : static_cast<float>(weight_decay),
      .keep = decoupled ? static_cast<float>(1 - lr * weight_decay) : 1.0f,
  };
}

CompensationCoefficients Compensation(const DelayCompensationConfig& config) {
  return {
      .lambda = static_cast<float>(config.lambda),
      .mean_square = static_cast<float>(config.mean_square),
      .one_minus_mean_square = static_cast<float>(1 - config.mean_square),
      .epsilon = static_cast<float>(DelayCompensationConfig::kEpsilon),
  };
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config)
    : config_(config), compensation_(Compensation(config.delay_compensation)) {
  if (IsAdam(config.kind)) {
    arrays_ = {"exp_avg", "exp_avg_sq"};
  } else if (config.momentum != 0) {
    arrays_ = {"momentum_buffer"};
  }
  if (config.delay_compensation.kind == DelayCompensationConfig::Kind::kAdaptive) arrays_.push_back("dc_mean_square");
  SLACKLINE_CHECK(arrays_.size() <= kArraysMax);
}

void Optimizer::BeginStep(const Step& step) {
  ++steps_;
  staleness_mean_ += (step.staleness - staleness_mean_) / static_cast<double>(std::min(steps_, kStalenessSteps));
  own_ = CoefficientsOf({.lr_factor = 1, .weight_decay = config_.weight_decay}, step.lr);
  groups_.clear();
  for (const GroupConfig& group : config_.groups) groups_.push_back(CoefficientsOf(group, step.lr));
}

Optimizer::Coefficients Optimizer::CoefficientsOf(const GroupConfig& group, double lr) const {
  Coefficients coefficients;
  if (IsAdam(config_.kind)) {
    coefficients.adam = Adam(config_, group.weight_decay, lr * group.lr_factor, steps_);
  } else {
    coefficients.sgd = Sgd(group.weight_decay, lr * group.lr_factor, momentum());
  }
  return coefficients;
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
  const auto& [sgd, adam] = group ? groups_[*group] : own_;
  const Block block{.elements = weights.size(), .gradient = gradient.data(), .weights = weights.data()};
  if (IsAdam(config_.kind)) {
    AdamStep(adam, block, {arrays[0], arrays[1]});
  } else if (config_.momentum == 0) {
    SgdStep(sgd, block);
  } else if (config_.nesterov) {
    NesterovStep(sgd, block, arrays[0]);
  } else {
    MomentumStep(sgd, block, arrays[0]);
  }
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
  Optimizer::BlockOfArrays block = {};
  for (size_t i = 0; i < arrays_.size(); ++i) block[i] = arrays_[i].get() + begin;
  optimizer_.StepBlock(gradient, weights, block);
}

}  // namespace slackline

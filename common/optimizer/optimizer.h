// The optimizers: torch.optim.SGD, Adam and AdamW, with the state that they keep for one shard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/optimizer/aligned_floats.h"
#include "common/optimizer/kernels.h"
#include "common/optimizer/schedule.h"

namespace slackline {

enum class OptimizerKind {
  // Weight decay is added to the gradient; momentum's first buffer is the first gradient.
  kSgd,
  // Kingma and Ba 2015, bias corrected, epsilon added to the square root. Weight decay is added to the gradient.
  kAdam,
  // Loshchilov and Hutter 2019: weights shrink by lr x weight_decay beside Adam's step.
  kAdamW,
};

// Delay compensation: Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", 2017. The
// defaults are the paper's: lambda 0.04 for constant; 2, a mean square that keeps 0.95, and 1e-7 under the root for
// adaptive. The mean square begins at 0.
struct DelayCompensationConfig {
  enum class Kind { kNone, kConstant, kAdaptive };
  static constexpr double kLambdaConstant = 0.04, kLambdaAdaptive = 2, kEpsilon = 1e-7;

  Kind kind = Kind::kNone;
  double lambda = kLambdaConstant;
  // Adaptive only.
  double mean_square = 0.95;
};

enum class MomentumCorrection {
  kNone,
  // Mitliagkas, Zhang, Hadjis and Re, "Asynchrony begets Momentum", 2016. Where the staleness of gradients is
  // memoryless with mean t, the expected update V obeys V' = s V - (1 - s) lr gradient with s = t / (t + 1): momentum
  // that nobody asked for (1 - 1/n for n workers, where t = n - 1). With explicit momentum m beside it that becomes V'
  // = (m + s) V - m s (the V before) - (1 - s) lr gradient. To have the factor of V that was asked for, m is lowered by
  // s, and is 0 where s is more. The second term is left alone: it makes the whole less than was asked for, never more.
  // The learning rate, whose effect grows by 1 / (1 - m), is left alone, too.
  kAsynchrony,
};

enum class LrScaling { kNone, kLinear };

// What a group of tensors has in the place of the optimizer's own settings, as torch.optim's param_groups.
struct GroupConfig {
  // Of the learning rate, after schedule and scale.
  double lr_factor = 1;
  double weight_decay = 0;
};

// Means what the fields of the same name in job.proto mean.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  // Before the schedule.
  double lr = 0.05;
  double momentum = 0;
  MomentumCorrection momentum_correction = MomentumCorrection::kNone;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Largest norm of a gradient over the whole model; 0 means any.
  double clip_norm = 0;
  DelayCompensationConfig delay_compensation = {};
  LrScaling scaling = LrScaling::kNone;
  ScheduleConfig schedule = {};
  std::vector<GroupConfig> groups = {};
  // Of the exponential average of the weights, which ShardState keeps; 0: there is none.
  double ema = 0;
};

// Learning rate of a step that is taken after `samples_applied` samples, on a mean over `batches` batches of one
// worker.
inline double LearningRate(const OptimizerConfig& config, uint64_t samples_applied, double batches) {
  return config.lr * (config.scaling == LrScaling::kLinear
                          ? ScaledScheduleFactor(config.schedule, samples_applied, batches)
                          : ScheduleFactor(config.schedule, samples_applied));
}

// Takes steps, block by block. What it remembers about each element lies with the caller, in arrays.
//
// Thread-safety: none.
// Invariant:     equal steps in equal order give equal bits, on any machine of one byte order.
class Optimizer {
 public:
  static constexpr size_t kArraysMax = 3;
  // Of each array, in their order, its values of the elements of a block.
  using BlockOfArrays = std::array<float*, kArraysMax>;

  // No step is taken.
  explicit Optimizer(const OptimizerConfig& config);

  // So many arrays of a float32 for each trained element are needed; all 0 before the first step. By PyTorch's names:
  // momentum_buffer; exp_avg, exp_avg_sq. Last, with adaptive delay compensation, dc_mean_square.
  const std::vector<absl::string_view>& arrays() const { return arrays_; }

  // Opens the next step.
  struct Step {
    // After schedule and scale.
    double lr = 0;
    // Mean over the gradients, in versions.
    double staleness = 0;
  };
  void BeginStep(const Step& step);
  // Compensates one push's gradient of some elements for what has become of the weights since it was computed. Each
  // push exactly once, before the step is taken for these elements. weights_then null: not known, or the same; adaptive
  // still counts the gradient in its mean square. Requires: delay compensation.
  void CompensateBlock(StaleBlock block, const BlockOfArrays& arrays) const;
  // Takes the open step for some elements, which are all of one of OptimizerConfig::groups, or of none; each element
  // exactly once a step. Requires: gradient.size() == weights.size().
  void StepBlock(absl::Span<const float> gradient, absl::Span<float> weights, const BlockOfArrays& arrays,
                 std::optional<uint32_t> group = std::nullopt) const;

  // Steps over which the mean staleness runs; before, it is the mean of all.
  static constexpr uint64_t kStalenessSteps = 100;
  // That the last step was taken with.
  double momentum() const;

  // With the arrays, all that there is to keep in a snapshot and to restore: the steps, and the mean staleness of their
  // gradients.
  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t steps) { steps_ = steps; }
  double staleness_mean() const { return staleness_mean_; }
  void set_staleness_mean(double staleness) { staleness_mean_ = staleness; }

 private:
  const OptimizerConfig config_;
  std::vector<absl::string_view> arrays_;
  uint64_t steps_ = 0;
  double staleness_mean_ = 0;
  // Of the open step; the one that belongs to the kind.
  struct Coefficients {
    SgdCoefficients sgd;
    AdamCoefficients adam;
  };
  Coefficients CoefficientsOf(const GroupConfig& group, double lr) const;

  Coefficients own_;                  // where no group is
  std::vector<Coefficients> groups_;  // one a group
  const CompensationCoefficients compensation_;
};

// An optimizer with arrays of its own, for elements that no others look at.
//
// Thread-safety: none.
class OptimizerState {
 public:
  // All arrays are 0 and no step is taken.
  OptimizerState(const OptimizerConfig& config, uint64_t elements);

  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // As Optimizer's, for elements begin, begin + 1, ...
  void BeginStep(const Optimizer::Step& step) { optimizer_.BeginStep(step); }
  void StepBlock(uint64_t begin, absl::Span<const float> gradient, absl::Span<float> weights);

  // The arrays of optimizer().
  size_t arrays() const { return arrays_.size(); }
  absl::Span<const float> array(size_t index) const { return {arrays_[index].get(), elements_}; }
  absl::Span<float> mutable_array(size_t index) { return {arrays_[index].get(), elements_}; }

 private:
  Optimizer optimizer_;
  const uint64_t elements_;
  std::vector<AlignedFloats> arrays_;
};

}  // namespace slackline

// The optimizers, equivalent to torch.optim.SGD, Adam and AdamW, with the state that they keep for one shard.
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

// Numbers are those of job::Optimizer::Kind and job::Local::Optimizer.
enum class OptimizerKind {
  // SGD. Weight decay is added to the gradient; momentum's first buffer is the first gradient.
  kSgd = 1,
  // Kingma and Ba 2015, bias corrected, epsilon added to the square root. Weight decay is added to the gradient.
  kAdam = 2,
  // Loshchilov and Hutter 2019: weights shrink by lr x weight_decay in addition to Adam's step.
  kAdamW = 3,
};

// Delay compensation: Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", 2017. The
// defaults are the paper's: lambda 0.04 for constant; 2, a mean square that keeps 0.95, and 1e-7 under the root for
// adaptive. The mean square begins at 0.
struct DelayCompensationConfig {
  enum class Kind { kNone, kConstant, kAdaptive };
  static constexpr double kLambdaConstant = 0.04, kLambdaAdaptive = 2, kEpsilon = 1e-7;

  Kind kind = Kind::kNone;
  double lambda = kLambdaConstant;
  // Share of the mean square that a step keeps. Adaptive only.
  double mean_square = 0.95;
};

// How the pushes of a step become one, element by element. Values are those of job::Aggregation::Kind.
struct AggregationConfig {
  enum class Kind { kMean = 1, kTrimmedMean = 2, kMedian = 3 };

  Kind kind = Kind::kMean;
  double trim = 0.2;

  // Returns how many of the values are left out at each end. At least one value remains.
  size_t LeftOut(size_t pushes) const;
};

enum class MomentumCorrection {
  kNone,
  // Mitliagkas, Zhang, Hadjis and Re, "Asynchrony begets Momentum", 2016. If the staleness of gradients is memoryless
  // with mean t, the expected update V obeys V' = s V - (1 - s) lr gradient with s = t / (t + 1). This s is an implicit
  // momentum (1 - 1/n for n workers, where t = n - 1). With explicit momentum m the update becomes V' = (m + s) V - m s
  // (the V before) - (1 - s) lr gradient. To give V the configured factor, m is lowered by s, and is 0 if s is larger.
  // The second term is not corrected: it makes the total less than configured, never more. The learning rate, whose
  // effect grows by 1 / (1 - m), is not corrected either.
  kAsynchrony,
};

enum class LrScaling { kNone, kLinear };

// Settings of a group of tensors that replace the optimizer's own, as in torch.optim's param_groups.
struct GroupConfig {
  // Factor of the learning rate, after schedule and scale.
  double lr_factor = 1;
  double weight_decay = 0;
};

// The fields have the meaning of the fields with the same name in job.proto.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  // Learning rate before the schedule.
  double lr = 0.05;
  double momentum = 0;
  MomentumCorrection momentum_correction = MomentumCorrection::kNone;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Largest norm of a gradient over the whole model; 0 means unlimited.
  double clip_norm = 0;
  DelayCompensationConfig delay_compensation = {};
  AggregationConfig aggregation = {};
  LrScaling scaling = LrScaling::kNone;
  ScheduleConfig schedule = {};
  std::vector<GroupConfig> groups = {};
  // Decay of the exponential average of the weights, which ShardState keeps; 0: there is no average.
  double ema = 0;
  // True if ShardState predicts the weights that gradients will be applied to.
  bool predicts = false;
  // Number of steps that a worker may have in flight.
  uint32_t window = 1;
};

// Returns the learning rate of a step that is taken after `samples_applied` samples, on a mean over `batches` batches
// of one worker.
inline double LearningRate(const OptimizerConfig& config, uint64_t samples_applied, double batches) {
  return config.lr * (config.scaling == LrScaling::kLinear
                          ? ScaledScheduleFactor(config.schedule, samples_applied, batches)
                          : ScheduleFactor(config.schedule, samples_applied));
}

// Settings of a step for the elements of one group.
struct StepSettings {
  // Learning rate after schedule, scale and factor of the group.
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;  // after its correction
  uint64_t step = 1;    // counts from 1
};

// Coefficients of a step; only the member for the optimizer's kind is set.
struct StepCoefficients {
  SgdCoefficients sgd;
  AdamCoefficients adam;
};

// Pointers into the arrays of an optimizer, in their order, to the values of a block's elements.
inline constexpr size_t kOptimizerArraysMax = 3;
using BlockOfArrays = std::array<float*, kOptimizerArraysMax>;

// An entry of the table of optimizers. A new kind needs an entry in optimizer.cc, values in protos/job.proto, and its
// kernel.
struct OptimizerFacts {
  OptimizerKind kind = OptimizerKind::kSgd;
  // Name in the job file.
  absl::string_view name;
  // True if the kind has the settings momentum, nesterov and momentum_correction.
  bool has_momentum = false;
  // True if the kind keeps running means of the gradient, with the settings beta1, beta2 and epsilon.
  bool has_moments = false;
  // Returns the names of the arrays that the step keeps.
  std::vector<absl::string_view> (*arrays)(const OptimizerConfig& config) = nullptr;
  StepCoefficients (*coefficients)(const OptimizerConfig& config, const StepSettings& settings) = nullptr;
  // Takes a step for the elements of a block.
  void (*step)(const OptimizerConfig& config, const StepCoefficients& coefficients, const Block& block,
               const BlockOfArrays& arrays) = nullptr;
};

// Returns all entries, in the order in which messages name kinds.
absl::Span<const OptimizerFacts> AllOptimizers();
// Returns the entry of a kind. Requires: it has one.
const OptimizerFacts& FactsOf(OptimizerKind kind);

// Takes optimizer steps, block by block. The caller keeps the state of the elements, in arrays.
//
// Thread-safety: none.
// Invariant:     equal steps in equal order give equal bits, on any machine with the same byte order.
class Optimizer {
 public:
  // Creates an optimizer with no step taken.
  explicit Optimizer(const OptimizerConfig& config);

  // Names of the arrays that are needed, each with a float32 for each trained element, all 0 before the first step. The
  // names are PyTorch's: momentum_buffer; exp_avg, exp_avg_sq. With adaptive delay compensation, dc_mean_square is
  // last.
  const std::vector<absl::string_view>& arrays() const { return arrays_; }

  // Arguments of BeginStep(), which opens the next step.
  struct Step {
    // Learning rate after schedule and scale.
    double lr = 0;
    // Mean staleness of the gradients, in versions.
    double staleness = 0;
    // Learning rate of each of OptimizerConfig::groups; empty: lr, times the group's factor.
    absl::Span<const double> group_lrs = {};
  };
  // Requires: group_lrs has one entry a group, or none.
  void BeginStep(const Step& step);
  // Compensates one push's gradient of some elements for the change of the weights since it was computed. Call it
  // exactly once for each push, before the step for these elements. A null weights_then means that the old weights are
  // unknown or unchanged; adaptive compensation still counts the gradient in its mean square. Requires: delay
  // compensation.
  void CompensateBlock(StaleBlock block, const BlockOfArrays& arrays) const;
  // Takes the open step for some elements. All of them belong to one of OptimizerConfig::groups, or to none. Each
  // element takes each step exactly once. Requires: gradient.size() == weights.size().
  void StepBlock(absl::Span<const float> gradient, absl::Span<float> weights, const BlockOfArrays& arrays,
                 std::optional<uint32_t> group = std::nullopt) const;

  // The running mean of the staleness gives each new step the weight 1 / kStalenessSteps. Before that many steps it is
  // the mean of all.
  static constexpr uint64_t kStalenessSteps = 100;
  // Returns the momentum of the last step.
  double momentum() const;

  // State that a snapshot keeps in addition to the arrays: the number of steps, and the mean staleness of their
  // gradients.
  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t steps) { steps_ = steps; }
  double staleness_mean() const { return staleness_mean_; }
  void set_staleness_mean(double staleness) { staleness_mean_ = staleness; }

 private:
  StepCoefficients CoefficientsAt(double lr, double weight_decay) const;

  const OptimizerConfig config_;
  const OptimizerFacts& facts_;
  std::vector<absl::string_view> arrays_;
  uint64_t steps_ = 0;
  double staleness_mean_ = 0;
  // Coefficients of the open step.
  StepCoefficients own_;                  // elements of no group
  std::vector<StepCoefficients> groups_;  // elements of each group
  const CompensationCoefficients compensation_;
};

// An optimizer that owns its arrays, for elements that nobody else uses.
//
// Thread-safety: none.
class OptimizerState {
 public:
  // Creates an optimizer with all arrays 0 and no step taken.
  OptimizerState(const OptimizerConfig& config, uint64_t elements);

  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // Take a step like Optimizer's, for the elements from `begin` on.
  void BeginStep(const Optimizer::Step& step) { optimizer_.BeginStep(step); }
  void StepBlock(uint64_t begin, absl::Span<const float> gradient, absl::Span<float> weights);

  // Returns the number of arrays of optimizer(); array() and mutable_array() return one of them.
  size_t arrays() const { return arrays_.size(); }
  absl::Span<const float> array(size_t index) const { return {arrays_[index].get(), elements_}; }
  absl::Span<float> mutable_array(size_t index) { return {arrays_[index].get(), elements_}; }

 private:
  Optimizer optimizer_;
  const uint64_t elements_;
  std::vector<AlignedFloats> arrays_;
};

}  // namespace slackline

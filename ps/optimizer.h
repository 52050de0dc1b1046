// The optimizers: torch.optim.SGD, Adam and AdamW, with the state that they keep for one shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/aligned_floats.h"
#include "ps/kernels.h"
#include "ps/schedule.h"

namespace slackline::ps {

enum class OptimizerKind {
  // Weight decay is added to the gradient; momentum's first buffer is the first gradient.
  kSgd,
  // Kingma and Ba 2015, bias corrected, epsilon added to the square root. Weight decay is added to the gradient.
  kAdam,
  // Loshchilov and Hutter 2019: weights shrink by lr x weight_decay beside Adam's step.
  kAdamW,
};

// Means what the fields of the same name in job.proto mean.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  // Before the schedule.
  double lr = 0.05;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Largest norm of a gradient over the whole model; 0 means any.
  double clip_norm = 0;
  ScheduleConfig schedule = {};
};

// Learning rate of a step that is taken after `samples_applied` samples.
inline double LearningRate(const OptimizerConfig& config, uint64_t samples_applied) {
  return config.lr * ScheduleFactor(config.schedule, samples_applied);
}

// What an optimizer remembers about the trained elements of one shard.
//
// Thread-safety: none.
// Invariant:     equal steps in equal order give equal bits, on any machine of one byte order.
class OptimizerState {
 public:
  // All arrays are 0 and no step is taken.
  OptimizerState(const OptimizerConfig& config, uint64_t elements);

  // Opens the next step; `lr` is after schedule and scale.
  void BeginStep(double lr);
  // Takes the open step for elements begin, begin + 1, ...; each element exactly once a step.
  // Requires: gradient.size() == weights.size().
  void StepBlock(uint64_t begin, absl::Span<const float> gradient, absl::Span<float> weights);

  // The state itself, for snapshots and their restoration: so many arrays of elements() float32, and the steps.
  size_t arrays() const { return arrays_.size(); }
  // PyTorch's name: momentum_buffer; exp_avg, exp_avg_sq.
  absl::string_view name(size_t index) const { return arrays_[index].name; }
  absl::Span<const float> array(size_t index) const { return {arrays_[index].values.get(), elements_}; }
  absl::Span<float> mutable_array(size_t index) { return {arrays_[index].values.get(), elements_}; }
  uint64_t elements() const { return elements_; }
  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t steps) { steps_ = steps; }

 private:
  struct Array {
    std::string name;
    AlignedFloats values;
  };

  void AddArray(absl::string_view name);
  float* At(size_t index, uint64_t begin) { return arrays_[index].values.get() + begin; }

  const OptimizerConfig config_;
  const uint64_t elements_;
  std::vector<Array> arrays_;
  uint64_t steps_ = 0;
  // Of the open step; the one that belongs to the kind.
  SgdCoefficients sgd_;
  AdamCoefficients adam_;
};

}  // namespace slackline::ps

// A model that needs no LibTorch: its weights are drawn to the mean of the images that they see.
#pragma once

#include <optional>
#include <vector>

#include "simulator/computation.h"

namespace slackline::simulator {

// The loss of image i is |w - x_i|^2 / 2, where all elements of x_i are i mod 3; its gradient is w - x_i. The best
// weights are 1, the initial ones 4. "Accuracy" is 1 - |w - 1| of the first element, at least 0.
//
// Thread-safety: none.
class ToyComputation final : public Computation {
 public:
  static constexpr uint64_t kElements = 64;
  static constexpr uint64_t kImages = 900;

  ToyComputation();

  // Makes every step after `steps` others fail.
  void FailAfter(uint64_t steps) { fail_after_ = steps; }
  // Returns the batch sizes of all steps, over all workers, in the order in which the steps began.
  const std::vector<uint64_t>& batches() const { return batches_; }
  // Returns the first element of the weights at the last evaluation.
  float last_weight() const { return last_weight_; }

  const Learned& learned() const override { return learned_; }
  absl::Span<const float> initial_weights() const override { return initial_; }
  Pending Begin(StepTask task) override;
  absl::StatusOr<worker::EvaluationResult> Evaluate(const Weights& weights,
                                                    const worker::EvaluationWork& work) override;
  absl::StatusOr<absl::Duration> Measure(uint64_t) override { return absl::Milliseconds(1); }

 private:
  Learned learned_;
  std::vector<float> initial_;
  std::vector<uint64_t> batches_;
  std::optional<uint64_t> fail_after_;
  float last_weight_ = 0;
};

}  // namespace slackline::simulator

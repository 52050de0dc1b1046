// LocalRound: one round of local training. It steps on the model's own weights, and then forms the difference from the
// weights at the beginning.
#pragma once

#include <memory>

#include "common/optimizer/aligned_floats.h"
#include "worker/local_training/local_config.h"
#include "worker/model/model.h"

namespace slackline::worker {

// LocalRound produces the difference that local SGD, federated averaging and DiLoCo (Douillard et al. 2023) give the
// outer optimizer as its gradient. Averaged buffers (batch-norm statistics) change with each step, as in training
// without servers, and are pushed as they are after the last step.
//
// Memory:        one more copy of the weights, and the inner optimizer's state.
// Copies:        weights -> start: 1; start - weights -> push: 1.
// Thread-safety: none.
class LocalRound {
 public:
  explicit LocalRound(const LocalConfig& config) : config_(config) {}

  // Begins a round on the model's present weights. `state`: the inner optimizer's state that TakeState() returned after
  // the previous round, else null.
  void Begin(Model& model, std::shared_ptr<OptimizerState> state);
  // Takes a step of the inner optimizer with the gradient that the model has computed.
  void Step(Model& model, const StepResult& result);
  // Fills the model's push(), restores the weights from the beginning, and returns the sum of the steps. Requires: at
  // least one step.
  StepResult Finish(Model& model);
  // Number of steps of the newest round.
  uint64_t steps() const { return steps_; }
  // Returns the inner optimizer's state. Null if each round begins with a new one.
  std::shared_ptr<OptimizerState> TakeState();

 private:
  const LocalConfig config_;
  AlignedFloats start_;
  std::shared_ptr<OptimizerState> optimizer_;
  uint64_t steps_ = 0;
  StepResult sum_;
  double loss_sum_ = 0;  // over samples
};

}  // namespace slackline::worker

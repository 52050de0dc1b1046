// One round of local training: steps on a model's own weights, then their difference to those that it began with.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "common/optimizer/aligned_floats.h"
#include "worker/local/local_config.h"
#include "worker/model/model.h"

namespace slackline::worker {

// The difference is what local SGD, federated averaging and DiLoCo (Douillard et al. 2023) give the outer optimizer as
// its gradient. Averaged buffers (batch-norm statistics) move with each step, as in training alone, and are pushed as
// they are after the last.
//
// Memory:        the weights once more, and the inner optimizer's state.
// Copies:        weights -> start: 1; start - weights -> push: 1.
// Thread-safety: none.
class LocalRound {
 public:
  explicit LocalRound(const LocalConfig& config) : config_(config) {}

  // The model has the weights of the round's beginning. `state`: of the inner optimizer, as TakeState() gave it after
  // the round before, else null.
  void Begin(Model& model, std::shared_ptr<OptimizerState> state);
  // The model has made its gradient: takes the inner optimizer's step.
  void Step(Model& model, const StepResult& result);
  // Fills the model's push(), gives it back the weights it began with, and sums up the steps, of which there was at
  // least one.
  StepResult Finish(Model& model);
  // Null where each round begins with none.
  std::shared_ptr<OptimizerState> TakeState();

 private:
  const LocalConfig config_;
  AlignedFloats start_;
  std::shared_ptr<OptimizerState> optimizer_;
  StepResult sum_;
  double loss_sum_ = 0;  // over samples
};

}  // namespace slackline::worker

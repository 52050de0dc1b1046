// How good a batch's outputs are. LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace slackline::worker {

// Outputs are n x classes, of a batch of n labels; `loss` is one number. Predictions, n or none, get the largest
// output's class; where there are some, the five largest are counted, too. Both come to the host, which waits for them.
StepResult ScoreOf(const at::Tensor& outputs, const at::Tensor& loss, const BatchView& batch,
                   absl::Span<int64_t> predictions = {});

}  // namespace slackline::worker

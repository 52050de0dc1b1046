// Measures the quality of a batch's outputs. Uses LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace slackline::worker {

// Scores outputs, n x classes, of a batch of n labels; `loss` is one number. Writes the class of the largest output to
// `predictions`, of size n or 0. With predictions, also counts labels among the five largest outputs. Copies outputs
// and loss to the host, which blocks until they are computed.
StepResult ScoreOf(const at::Tensor& outputs, const at::Tensor& loss, const BatchView& batch,
                   absl::Span<int64_t> predictions = {});

}  // namespace slackline::worker

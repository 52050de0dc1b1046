// Activation checkpointing: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016. Uses
// LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/model/model.h"

namespace slackline::worker {

// Returns body(x) and keeps only x: backward computes the body again. If nothing needs a gradient, this is just
// body(x).
//
// `parameters`: leaves that need a gradient and that the body reads besides x; each once. The body must compute the
// same both times, so random masks must be drawn before. `precision` is that of the surrounding pass.
at::Tensor Recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters, Precision precision,
                      std::function<at::Tensor(const at::Tensor&)> body);

}  // namespace slackline::worker

// Activation checkpointing: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016.
// LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/model/model.h"

namespace slackline::worker {

// body(x), of which only x is kept: backward computes it again. Where nothing needs a gradient it is body(x) alone.
//
// `parameters`: leaves that need a gradient, which the body reads beside x; each once. The body must compute the same
// both times, so that what it leaves out at random is drawn before. `precision` is that of the pass around it.
at::Tensor Recomputed(const at::Tensor& x, const std::vector<at::Tensor>& parameters, Precision precision,
                      std::function<at::Tensor(const at::Tensor&)> body);

}  // namespace slackline::worker

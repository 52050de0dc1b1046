// Real gradients: the worker's model, by default on as many threads as there are cores.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "images/dataset/dataset.h"
#include "simulator/computation.h"
#include "worker/model/layout.h"
#include "worker/settings/job_config.h"

namespace slackline::simulator {

// Threads: `threads`, created here and joined in the destructor. Each has its own model and computes on one core.
//   kNotFound, kInvalidArgument  the data cannot be read or does not fit the model
absl::StatusOr<std::unique_ptr<Computation>> MakeTorchComputation(const worker::WorkerConfig& config, uint32_t threads);

// Returns the tensors of a model. LibTorch reads modules of the user's own.
//   kInvalidArgument  the model cannot be built, or the module cannot be read; says why
//   kUnimplemented    the model is a module, and this simulator is built without LibTorch
absl::StatusOr<worker::Layout> LayoutOf(const worker::ModelSpec& spec);

}  // namespace slackline::simulator

// Gradients for real: the worker's model, on as many threads as there are cores.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "simulator/computation.h"
#include "worker/data/dataset.h"
#include "worker/job_config.h"

namespace slackline::simulator {

// Threads: `threads`, born here, joined in the destructor; each has a model of its own and computes on one core.
//   kNotFound, kInvalidArgument  the data cannot be read or do not fit the model
absl::StatusOr<std::unique_ptr<Computation>> MakeTorchComputation(const worker::WorkerConfig& config, uint32_t threads);

// The same model and data as far as they have a size; gradients are nothing, evaluations are 0 images.
absl::StatusOr<std::unique_ptr<Computation>> MakeNoComputation(const worker::WorkerConfig& config);

}  // namespace slackline::simulator

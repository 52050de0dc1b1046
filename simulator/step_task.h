// A simulated worker's step with a real model. It computes the same as the trainer's loop over the batches of one push.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "simulator/computation.h"
#include "worker/model/model.h"

namespace slackline::simulator {

// Returns the batch of these images, which is valid until the next call.
using LoadBatch = std::function<absl::StatusOr<worker::BatchView>(absl::Span<const uint32_t> images)>;

// Fills model.push() and gradient.result. Stores the state of the inner optimizer after local training in `gradient`.
// Requires: the model has the weights of the task.
absl::Status RunTask(const StepTask& task, const LoadBatch& load, worker::Model& model, Gradient& gradient);

}  // namespace slackline::simulator

// A simulated worker's step with a real model: what the trainer's loop makes of the batches of one push.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "simulator/computation.h"
#include "worker/model/model.h"

namespace slackline::simulator {

// The batch of these images; valid until the next call.
using LoadBatch = std::function<absl::StatusOr<worker::BatchView>(absl::Span<const uint32_t> images)>;

// Fills model.push() and gradient.result, and gives gradient the inner optimizer's state that local training leaves.
// Requires: the model has the weights of the task.
absl::Status RunTask(const StepTask& task, const LoadBatch& load, worker::Model& model, Gradient& gradient);

}  // namespace slackline::simulator

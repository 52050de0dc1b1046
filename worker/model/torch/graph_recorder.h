// Implements StepRecorder with LibTorch's graphs, which are CUDA graphs on NVIDIA's GPUs. Uses LibTorch.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/model/step_recorder.h"

namespace slackline::worker {

// Creates a recorder. The memory for a step's intermediate values stays reserved between steps.
//   kInvalidArgument  LibTorch has no graphs for such a device
absl::StatusOr<std::unique_ptr<StepRecorder>> MakeGraphRecorder(at::Device device);

}  // namespace slackline::worker

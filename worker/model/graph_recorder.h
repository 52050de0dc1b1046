// StepRecorder on LibTorch's graphs, which on NVIDIA's GPUs are CUDA graphs. LibTorch inside.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/model/step_recorder.h"

namespace slackline::worker {

// Its memory for what a step makes on the way stays reserved from one step to the next.
//   kInvalidArgument  LibTorch has no graphs for such a device
absl::StatusOr<std::unique_ptr<StepRecorder>> MakeGraphRecorder(at::Device device);

}  // namespace slackline::worker

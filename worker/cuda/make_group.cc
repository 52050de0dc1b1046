#include "worker/cuda/gpu_group.h"
#include "worker/cuda/gpus.h"

namespace slackline::worker::gpu {

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& spec, uint64_t seed,
                                                      const std::vector<Device>& devices, const Timeouts& timeouts,
                                                      Trace* trace) {
  if (const absl::Status loaded = LoadLibTorchForGpus(); !loaded.ok()) return loaded;
  // Before the scheduler would call this worker stalled.
  return GpuGroup::Create(spec, seed, devices, timeouts.stall / 2, trace);
}

}  // namespace slackline::worker::gpu

// Of a build without CUDA.
#include "worker/cuda/gpus.h"

namespace slackline::worker::gpu {

GpusHere FindGpus() { return {.names = {}, .why_none = "this build has no CUDA (docs/gpu.md)"}; }

std::vector<std::string> PciAddresses(const std::vector<Device>& /*devices*/) { return {}; }

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& /*spec*/, uint64_t /*seed*/,
                                                      const std::vector<Device>& /*devices*/,
                                                      const GroupOptions& /*options*/) {
  return absl::FailedPreconditionError(FindGpus().why_none);
}

}  // namespace slackline::worker::gpu

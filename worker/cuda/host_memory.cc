#include "worker/cuda/host_memory.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace slackline::worker::gpu {

absl::StatusOr<std::unique_ptr<PinnedFloats>> PinnedFloats::Create(uint64_t elements) {
  void* memory = nullptr;
  const cudaError_t said =
      cudaHostAlloc(&memory, std::max<uint64_t>(1, elements) * sizeof(float), cudaHostAllocPortable);
  if (said != cudaSuccess) {
    return absl::InternalError(absl::StrCat("pinning ", elements * sizeof(float),
                                            " bytes of the host's memory: CUDA says ", cudaGetErrorString(said)));
  }
  const absl::Span<float> floats(static_cast<float*>(memory), elements);
  std::fill(floats.begin(), floats.end(), 0.0f);
  return std::unique_ptr<PinnedFloats>(new PinnedFloats(floats));
}

PinnedFloats::~PinnedFloats() { cudaFreeHost(span_.data()); }

void LentMemory::Pin(absl::Span<float> memory) {
  if (std::find(seen_.begin(), seen_.end(), memory.data()) != seen_.end()) return;
  seen_.push_back(memory.data());
  const cudaError_t said = cudaHostRegister(memory.data(), memory.size() * sizeof(float), cudaHostRegisterPortable);
  // CUDA would say it again to the next who asks for the last error.
  if (said != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace slackline::worker::gpu

#include "worker/cuda/host_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"
#include "worker/cuda/cuda_status.h"
#include "worker/cuda/runtime.h"
#include "worker/group/pinned_batches.h"

namespace slackline::worker::gpu {

namespace {

absl::StatusOr<void*> Allocate(uint64_t bytes) {
  void* memory = nullptr;
  const cudaError_t said = cudaHostAlloc(&memory, std::max<uint64_t>(1, bytes), cudaHostAllocPortable);
  if (said == cudaSuccess) return memory;
  // CUDA would say it again to the next who asks for the last error.
  (void)cudaGetLastError();
  return absl::InternalError(
      absl::StrCat("pinning ", bytes, " bytes of the host's memory: CUDA says ", cudaGetErrorString(said)));
}

absl::StatusOr<PinnedBatches::Block> PinBeside(const Device& device, size_t bytes) {
  const auto index = static_cast<int>(device.index);
  const absl::Status chosen = CudaStatus(cudaSetDevice(index), device, "choosing it");
  if (!chosen.ok()) return chosen;
  const absl::StatusOr<void*> memory = Allocate(bytes);
  if (!memory.ok()) return memory.status();
  return PinnedBatches::Block(static_cast<std::byte*>(*memory), [index](std::byte* mine) {
    (void)cudaSetDevice(index);
    (void)cudaFreeHost(mine);
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<std::byte[]>> MakePinnedBytes(size_t bytes) {
  const absl::StatusOr<void*> memory = Allocate(bytes);
  if (!memory.ok()) return memory.status();
  return std::shared_ptr<std::byte[]>(static_cast<std::byte*>(*memory),
                                      [](std::byte* mine) { (void)cudaFreeHost(mine); });
}

std::unique_ptr<images::BatchMemory> MakeBatchMemory(const Device& first) {
  return std::make_unique<PinnedBatches>(PinnedBatches::Host{
      .pin = [first](size_t bytes) { return PinBeside(first, bytes); },
      .on_refusal =
          [](const absl::Status& why) {
            log::Warning("images are in memory that is not pinned, from which copies are slower: ", why.message());
          }});
}

absl::StatusOr<std::unique_ptr<PinnedFloats>> PinnedFloats::Create(uint64_t elements) {
  const absl::StatusOr<void*> memory = Allocate(elements * sizeof(float));
  if (!memory.ok()) return memory.status();
  const absl::Span<float> floats(static_cast<float*>(*memory), elements);
  std::fill(floats.begin(), floats.end(), 0.0f);
  return std::unique_ptr<PinnedFloats>(new PinnedFloats(floats));
}

PinnedFloats::~PinnedFloats() { (void)cudaFreeHost(span_.data()); }

void LentMemory::Pin(absl::Span<float> memory) {
  if (std::find(seen_.begin(), seen_.end(), memory.data()) != seen_.end()) return;
  seen_.push_back(memory.data());
  // As PinBeside(): a context on another GPU would take memory there.
  (void)cudaSetDevice(static_cast<int>(first_.index));
  const cudaError_t said = cudaHostRegister(memory.data(), memory.size() * sizeof(float), cudaHostRegisterPortable);
  // CUDA would say it again to the next who asks for the last error.
  if (said != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace slackline::worker::gpu

#include "worker/cuda/square_sums.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "worker/cuda/codec_kernels.h"
#include "worker/cuda/cuda_status.h"
#include "worker/cuda/host_memory.h"

namespace slackline::worker::gpu {

namespace {
constexpr size_t kPartBytes = kSquareSums * sizeof(double);
}  // namespace

absl::StatusOr<std::unique_ptr<SquareSums>> SquareSums::Create(const Device& device, size_t parts) {
  std::unique_ptr<SquareSums> made(new SquareSums(device, parts));
  void* sums = nullptr;
  const absl::Status status = CudaStatus(cudaMalloc(&sums, parts * kPartBytes), device, "making room for a norm");
  if (!status.ok()) return status;
  made->sums_ = static_cast<double*>(sums);
  absl::StatusOr<ChunkStore::Block> host = MakePinnedBytes(parts * kPartBytes);
  if (!host.ok()) return host.status();
  made->host_sums_ = *std::move(host);
  return made;
}

SquareSums::~SquareSums() {
  // Errors of CUDA no longer matter here.
  (void)cudaSetDevice(static_cast<int>(device_.index));
  if (sums_ != nullptr) (void)cudaFree(sums_);
}

absl::Status SquareSums::Measure(size_t part, const float* values, size_t elements, cudaStream_t stream) {
  return CudaStatus(static_cast<cudaError_t>(SumSquares(values, elements, sums_ + part * kSquareSums, stream)), device_,
                    "measuring gradients");
}

absl::Status SquareSums::CopyOut(size_t part, cudaStream_t copies) {
  return CudaStatus(cudaMemcpyAsync(host_sums_.get() + part * kPartBytes, sums_ + part * kSquareSums, kPartBytes,
                                    cudaMemcpyDeviceToHost, copies),
                    device_, "copying a norm from it");
}

double SquareSums::norm() const {
  double sum = 0;
  for (size_t i = 0; i < parts_ * kSquareSums; ++i) {
    double square = 0;
    std::memcpy(&square, host_sums_.get() + i * sizeof(double), sizeof(square));
    sum += square;
  }
  return std::sqrt(sum);
}

}  // namespace slackline::worker::gpu

#include "worker/cuda/sum_encoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/cuda/codec_kernels.h"
#include "worker/cuda/cuda_status.h"

namespace slackline::worker::gpu {
namespace {

bool IsSparse(const PlannedChunk& chunk) { return FactsOf(chunk.codec).sparse; }

}  // namespace

absl::StatusOr<std::unique_ptr<SumEncoder>> SumEncoder::Create(const Device& device, const ChunkPlan& plan,
                                                               uint64_t elements) {
  std::unique_ptr<SumEncoder> made(new SumEncoder(device, plan));
  const absl::Status status = made->Allocate(elements);
  if (!status.ok()) return status;
  return made;
}

absl::Status SumEncoder::Check(cudaError_t said, const char* doing) const { return CudaStatus(said, device_, doing); }

absl::Status SumEncoder::Allocate(uint64_t elements) {
  const std::vector<PlannedChunk>& chunks = plan_.chunks();
  const bool residual =
      std::any_of(chunks.begin(), chunks.end(), [](const PlannedChunk& chunk) { return chunk.error_feedback; });
  const bool top_k = std::any_of(chunks.begin(), chunks.end(), IsSparse);
  const auto allocate = [&](auto** memory, size_t bytes) {
    void* made = nullptr;
    const absl::Status status = Check(cudaMalloc(&made, bytes), "making room for encoded gradients");
    *memory = static_cast<std::remove_pointer_t<decltype(memory)>>(made);
    return status;
  };
  absl::Status status = allocate(&block_, plan_.block_bytes());
  if (status.ok() && residual) status = allocate(&residual_, elements * sizeof(float));
  if (status.ok() && top_k) status = allocate(&scratch_, TopKScratchBytes(plan_.elements_max()));
  if (status.ok()) status = Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  if (status.ok()) status = Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  if (status.ok() && residual) {
    status = Check(cudaMemsetAsync(residual_, 0, elements * sizeof(float), stream_), "clearing residuals");
  }
  return status;
}

SumEncoder::~SumEncoder() {
  // What CUDA says to this helps nobody any more.
  (void)cudaSetDevice(static_cast<int>(device_.index));
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
  for (void* memory : {static_cast<void*>(residual_), static_cast<void*>(block_), scratch_}) {
    if (memory != nullptr) (void)cudaFree(memory);
  }
}

absl::Status SumEncoder::Chain(cudaStream_t before, cudaStream_t after) const {
  absl::Status status = Check(cudaEventRecord(event_, before), "recording an event");
  if (status.ok()) status = Check(cudaStreamWaitEvent(after, event_, 0), "ordering streams");
  return status;
}

absl::Status SumEncoder::Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) const {
  const bool in = stream == stream_;
  return Check(cudaMemcpyAsync(to, from, bytes, in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
               in ? "copying discarded gradients to it" : "copying gradients from it");
}

absl::Status SumEncoder::Begin(const Memory& memory, std::vector<ChunkStore::Returned> returned) {
  memory_ = memory;
  // What it had before was copied long ago: all buckets of the last step were on the host.
  returned_ = std::move(returned);
  absl::Status status = Chain(memory_.copies, stream_);
  for (const ChunkStore::Returned& one : returned_) {
    if (status.ok()) status = Return(one);
  }
  return status;
}

// Through the place that the chunk's next bytes go to.
absl::Status SumEncoder::Return(const ChunkStore::Returned& returned) {
  const PlannedChunk& chunk = plan_.chunks()[returned.chunk];
  std::byte* const bytes = block_ + plan_.place(returned.chunk);
  const absl::Status copied = Copy(bytes, returned.bytes.bytes.get(), returned.bytes.size, stream_);
  if (!copied.ok()) return copied;
  const DeviceBytes in = {.elements = chunk.elements, .bytes = bytes};
  constexpr char kDoing[] = "taking a discarded gradient back";
  switch (chunk.codec.encoding) {
    case codec::Encoding::kBf16:
      return CheckKernel(ReturnBf16(in, ResidualOf(chunk), stream_), kDoing);
    case codec::Encoding::kFp16:
      return CheckKernel(ReturnFp16(in, ResidualOf(chunk), stream_), kDoing);
    case codec::Encoding::kInt8:
      return CheckKernel(ReturnInt8(in, ResidualOf(chunk), stream_), kDoing);
    case codec::Encoding::kTopK: {
      const uint64_t pairs = returned.bytes.size / codec::Granularity(chunk.codec);
      return CheckKernel(ReturnTopK({.elements = pairs, .bytes = bytes}, ResidualOf(chunk), stream_), kDoing);
    }
    case codec::Encoding::kFp32:
      break;  // a plan has none
  }
  SLACKLINE_CHECK(false);
  return absl::OkStatus();
}

absl::Status SumEncoder::Encode(size_t index) {
  const PlannedChunk& chunk = plan_.chunks()[index];
  const DeviceValues values = {
      .elements = chunk.elements, .in = memory_.push + chunk.begin, .residual = ResidualOf(chunk)};
  std::byte* const out = block_ + plan_.place(index);
  constexpr char kDoing[] = "encoding gradients";
  switch (chunk.codec.encoding) {
    case codec::Encoding::kBf16:
      return CheckKernel(EncodeBf16(values, out, stream_), kDoing);
    case codec::Encoding::kFp16:
      return CheckKernel(EncodeFp16(values, out, stream_), kDoing);
    case codec::Encoding::kInt8:
      return CheckKernel(EncodeInt8(values, out, stream_), kDoing);
    case codec::Encoding::kTopK: {
      auto* const count = reinterpret_cast<uint64_t*>(block_ + plan_.count_place(index));
      const uint64_t pairs = codec::TopKPairsMax(chunk.codec, chunk.elements);
      return CheckKernel(EncodeTopK(pairs, values, scratch_, out, count, stream_), kDoing);
    }
    case codec::Encoding::kFp32:
      break;  // a plan has none
  }
  SLACKLINE_CHECK(false);
  return absl::OkStatus();
}

absl::Status SumEncoder::Send(const Bucket& bucket) {
  const ChunkRange chunks = plan_.CompleteIn(bucket.elements);
  absl::Status status = Chain(bucket.sums, stream_);
  for (size_t i = chunks.begin; i < chunks.end && status.ok(); ++i) status = Encode(i);
  if (status.ok()) status = Chain(stream_, memory_.copies);
  return status.ok() ? CopyOut(bucket, chunks) : status;
}

absl::Status SumEncoder::CopyOut(const Bucket& bucket, const ChunkRange& chunks) {
  const cudaStream_t copies = memory_.copies;
  absl::Status status;
  const auto copy_block = [&](size_t begin, size_t end) {
    if (status.ok() && end > begin) status = Copy(memory_.block + begin, block_ + begin, end - begin, copies);
  };
  copy_block(plan_.place(chunks.begin), plan_.place(chunks.end));
  if (scratch_ != nullptr) copy_block(plan_.count_place(chunks.begin), plan_.count_place(chunks.end));
  for (const Elements& plain : plan_.PlainIn(bucket.elements)) {
    if (!status.ok()) break;
    status = Copy(memory_.host_push + plain.begin, memory_.push + plain.begin,
                  (plain.end - plain.begin) * sizeof(float), copies);
  }
  return status;
}

}  // namespace slackline::worker::gpu

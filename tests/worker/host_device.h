// A fake device that encodes, on the host: it runs the lines of the GPU's kernels behind the same interface as a group
// on GPUs. For tests on a machine without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "tests/worker/gpu_codec_host.h"
#include "worker/base/gradient_norm.h"
#include "worker/group/chunk_store.h"
#include "worker/group/local_group.h"

namespace slackline::worker {

// Thread-safety: none, except for encoder().
class HostDevice {
 public:
  explicit HostDevice(uint64_t elements) : elements_(elements) {}

  ChunkStore& encoder() { return store_; }
  uint64_t encoded() const { return encoded_; }  // encoded chunks so far

  // Begins a step that writes to `push`.
  void Begin(absl::Span<float> push) {
    push_ = push;
    from_ = elements_;
    const absl::StatusOr<std::byte*> block = store_.Begin(push.data());
    SLACKLINE_CHECK(block.ok());
    block_ = *block;
    for (const ChunkStore::Returned& returned : store_.TakeReturned()) Return(returned);
  }

  // Takes note that push[from, elements) is complete, and encodes the chunks in it. Their floats become NaN, so that
  // they are of no use to anybody who reads them all the same. Returns the first element from which everything is
  // ready.
  uint64_t Summed(uint64_t from) {
    const ChunkRange complete = store_.plan().CompleteIn({from, from_});
    for (size_t i = complete.begin; i < complete.end; ++i) Encode(i);
    from_ = from;
    return store_.plan().ReadyFrom(from);
  }

 private:
  void Encode(size_t index) {
    const PlannedChunk& chunk = store_.plan().chunks()[index];
    float* const in = push_.data() + chunk.begin;
    float* const residual = chunk.error_feedback ? residual_.data() + chunk.begin : nullptr;
    std::byte* const out = block_ + store_.plan().place(index);
    switch (chunk.codec.encoding) {
      case codec::Encoding::kBf16:
        gpu::host::EncodeHalves<gpu::Bf16>(chunk.elements, in, residual, out);
        break;
      case codec::Encoding::kFp16:
        gpu::host::EncodeHalves<gpu::Fp16>(chunk.elements, in, residual, out);
        break;
      case codec::Encoding::kInt8:
        gpu::host::EncodeInt8Blocks(chunk.elements, in, residual, out);
        break;
      default: {
        const uint64_t most = codec::TopKPairsMax(chunk.codec, chunk.elements);
        const uint64_t pairs = gpu::host::EncodeTopK(most, chunk.elements, in, residual, out) / 8;
        std::memcpy(block_ + store_.plan().count_place(index), &pairs, sizeof(pairs));
      }
    }
    std::fill_n(in, chunk.elements, std::numeric_limits<float>::quiet_NaN());
    ++encoded_;
  }

  void Return(const ChunkStore::Returned& returned) {
    const PlannedChunk& chunk = store_.plan().chunks()[returned.chunk];
    const std::byte* const in = returned.bytes.bytes.get();
    float* const residual = residual_.data() + chunk.begin;
    switch (chunk.codec.encoding) {
      case codec::Encoding::kBf16:
        return gpu::host::ReturnHalves<gpu::Bf16>(chunk.elements, in, residual);
      case codec::Encoding::kFp16:
        return gpu::host::ReturnHalves<gpu::Fp16>(chunk.elements, in, residual);
      case codec::Encoding::kInt8:
        return gpu::host::ReturnInt8Blocks(chunk.elements, in, residual);
      default:
        return gpu::host::ReturnTopK(returned.bytes.size / 8, in, residual);
    }
  }

  absl::Status Prepare(const ChunkPlan& plan) {
    residual_.assign(plan.empty() ? 0 : elements_, 0);
    return absl::OkStatus();
  }

  const uint64_t elements_;
  ChunkStore store_{{.allocate = [](size_t bytes) -> absl::StatusOr<ChunkStore::Block> {
                       return std::make_shared<std::byte[]>(bytes);
                     },
                     .prepare = [this](const ChunkPlan& plan) { return Prepare(plan); }}};
  std::vector<float> residual_;
  absl::Span<float> push_;
  uint64_t from_ = 0;
  std::byte* block_ = nullptr;
  uint64_t encoded_ = 0;
};

// A group whose gradients a HostDevice encodes, bucket by bucket.
//
// Thread-safety: none, except for encoder().
class EncodingGroup final : public LocalGroup {
 public:
  explicit EncodingGroup(std::unique_ptr<LocalGroup> inner)
      : inner_(std::move(inner)), device_(inner_->model().elements()), gradient_(inner_->model().elements()) {}

  size_t devices() const override { return inner_->devices(); }
  Model& model() override { return inner_->model(); }
  ChunkEncoder* encoder() override { return &device_.encoder(); }
  uint64_t encoded() const { return device_.encoded(); }

  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override {
    if (device_.encoder().plan().empty()) return inner_->Step(batch, ready);
    const absl::Span<float> push = model().push();
    device_.Begin(push);
    uint64_t told = push.size();
    const auto summed = [&](uint64_t from) {
      std::copy(push.begin() + from, push.begin() + told, gradient_.begin() + static_cast<ptrdiff_t>(from));
      told = from;
      ready(device_.Summed(from));
    };
    absl::StatusOr<StepResult> result = inner_->Step(batch, summed);
    if (!result.ok()) return result;
    SLACKLINE_CHECK(told == 0);
    result->gradient_norm = L2Norm(absl::MakeConstSpan(gradient_).first(model().trained_elements()));
    return result;
  }

 private:
  const std::unique_ptr<LocalGroup> inner_;
  HostDevice device_;
  std::vector<float> gradient_;
};

}  // namespace slackline::worker

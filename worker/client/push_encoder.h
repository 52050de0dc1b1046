// A worker's pushes on their way to bytes: which elements take which form, the chunks of each, and what the forms could
// not say. Pure: no gRPC, no thread.
//
// Each chunk is encoded by itself, when its turn comes to go out, so that the first is on its way while the others are
// still floats. What was encoded is kept until the shard's final answer and never encoded again: a repeated push has
// the same bytes.
//
// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): what a code cannot say stays in a residual and goes out
// with the next gradient; with several steps in flight, with the next one that is encoded. The sum of what was
// applied and the residual is the sum of all gradients. A discarded push returns to the residual. Residuals die with
// the encoder, that is with this life of the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "worker/chunk_encoder.h"

namespace slackline::worker {

// Neighbouring elements of the model that are encoded alike.
struct CodecRun {
  uint64_t elements = 0;
  codec::Codec codec;
  // Means nothing for fp32.
  bool error_feedback = false;

  bool lossy() const { return codec.encoding != codec::Encoding::kFp32; }
};

// Chunks that are encoded where gradients are made, and who has them there. Their residuals are there, too.
struct DevicePlan {
  ChunkEncoder* encoder = nullptr;  // null: there are none
  std::vector<PlannedChunk> chunks = {};
};

// Thread-safety: none; the I/O thread owns it.
class PushEncoder {
 public:
  // Encoding a chunk is the longest that the I/O thread is away from its streams: so many elements at most.
  static constexpr uint64_t kChunkElementsMax = 1 << 20;

  // One shard's part of one step.
  class Push {
   public:
    struct Chunk {
      uint64_t offset = 0;  // from the shard's beginning
      uint64_t elements = 0;
      CodecRun run;
      // Of a chunk that the device encodes: its place in the plan. The host has no values of it.
      std::optional<size_t> planned = {};
      // Empty until it was encoded, and always for fp32, which travels as it lies.
      std::shared_ptr<const std::byte[]> bytes = {};  // shared with gRPC, which may read on beyond the answer
      size_t size = 0;
    };

    const std::vector<Chunk>& chunks() const { return chunks_; }
    // The chunk's part of the gradient.
    absl::Span<const float> values(size_t index) const {
      return values_.subspan(chunks_[index].offset, chunks_[index].elements);
    }

   private:
    friend class PushEncoder;
    uint64_t begin_ = 0;  // of the shard, in the model
    absl::Span<const float> values_;
    std::vector<Chunk> chunks_;
  };

  // The runs lie one after the other from the model's first element; what they leave is fp32. The device's chunks are
  // those that PlanChunks() gives of these runs; its encoder outlives this.
  explicit PushEncoder(std::vector<CodecRun> runs, DevicePlan device = {});

  // False: all is fp32, and there is nothing to encode.
  bool lossy() const;

  // Cuts the shard that begins at element `begin` of the model into chunks of at most `chunk_bytes` each, none of them
  // with two encodings. Borrows `values`, the shard's gradient, until all was encoded or the push is discarded.
  // Requires: chunk_bytes >= codec::kInt8BlockBytes.
  // Where chunks of it are planned: that they are planned with these bytes.
  Push Cut(uint64_t begin, absl::Span<const float> values, uint64_t chunk_bytes) const;

  // The chunks that Cut() would encode of [begin, end).
  std::vector<PlannedChunk> PlanChunks(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const;
  // Whether the device encodes some of [begin, end).
  bool OnDevice(uint64_t begin, uint64_t end) const;

  // The bytes of a chunk, encoded on the first call.
  // Requires: a chunk whose run is lossy.
  const Push::Chunk& Encode(Push& push, size_t index);

  // The shard will never apply it: what it said, and what it had still to say, returns to the residual where there is
  // one. Elsewhere the gradient is lost, as a discarded fp32 push is.
  void Return(const Push& push);

  // What goes out later, the model's length; empty while there is nothing.
  absl::Span<const float> residual() const { return residual_; }

 private:
  std::vector<Push::Chunk> CutRuns(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const;
  absl::Span<float> ResidualOf(const Push& push, const Push::Chunk& chunk);
  EncodedBytes TakeFromDevice(const Push& push, const Push::Chunk& chunk) const;

  const std::vector<CodecRun> runs_;
  const DevicePlan device_;
  // Of all runs together; made when it is first needed.
  std::vector<float> residual_;
};

}  // namespace slackline::worker

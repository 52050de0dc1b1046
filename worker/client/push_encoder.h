// Turns a worker's pushes into bytes: chooses the encoding of each element, cuts the chunks, and keeps the encoding
// errors. Pure: no gRPC, no thread.
//
// Each chunk is encoded separately, when its turn to be sent comes, so that the first chunk is in transit while the
// others are still floats. Encoded bytes are kept until the shard's final answer and never encoded again, so a repeated
// push has the same bytes.
//
// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): the part of a gradient that the code cannot express
// stays in a residual and goes out with the next gradient, or, with several steps in flight, with the next gradient
// that is encoded. The applied updates plus the residual equal the sum of all gradients. A discarded push returns to
// the residual. Residuals end with the encoder, that is, with this incarnation of the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/codec.h"
#include "worker/base/chunk_encoder.h"

namespace slackline::worker {

// A run of consecutive model elements with the same encoding.
struct CodecRun {
  uint64_t elements = 0;
  codec::Codec codec;
  // Error feedback on or off. Ignored for fp32.
  bool error_feedback = false;

  bool lossy() const { return codec.encoding != codec::Encoding::kFp32; }
};

// Chunks that a device encodes where the gradients are made, and the encoder that holds them. Their residuals are on
// the device, too.
struct DevicePlan {
  ChunkEncoder* encoder = nullptr;  // null: the device encodes no chunks
  std::vector<PlannedChunk> chunks = {};
};

// Thread-safety: none; the I/O thread owns it.
class PushEncoder {
 public:
  // Largest number of elements in a chunk. Encoding a chunk is the longest time that the I/O thread is away from its
  // streams.
  static constexpr uint64_t kChunkElementsMax = 1 << 20;

  // The part of a step for one shard.
  class Push {
   public:
    struct Chunk {
      uint64_t offset = 0;  // relative to the shard's beginning
      uint64_t elements = 0;
      CodecRun run;
      // Index in the plan, for a chunk that the device encodes. The host has no values for such a chunk.
      std::optional<size_t> planned = {};
      // Encoded bytes. Empty until the chunk is encoded, and always empty for fp32, which is sent as it lies in memory.
      std::shared_ptr<const std::byte[]> bytes = {};  // shared with gRPC, which may read it even after the answer
      size_t size = 0;
    };

    const std::vector<Chunk>& chunks() const { return chunks_; }
    // Returns the chunk's part of the gradient.
    absl::Span<const float> values(size_t index) const {
      return values_.subspan(chunks_[index].offset, chunks_[index].elements);
    }

   private:
    friend class PushEncoder;
    uint64_t begin_ = 0;  // the shard's first element, in the model
    absl::Span<const float> values_;
    std::vector<Chunk> chunks_;
  };

  // Creates an encoder for consecutive runs that start at the model's first element. Elements behind the last run are
  // fp32. The device's chunks are those that PlanChunks() returns for these runs; the device's encoder outlives this
  // object.
  explicit PushEncoder(std::vector<CodecRun> runs, DevicePlan device = {});

  // Returns false if all elements are fp32, so that there is nothing to encode.
  bool lossy() const;

  // Cuts the shard that begins at element `begin` of the model into chunks of at most `chunk_bytes` each. Each chunk
  // has one encoding. Borrows `values`, the shard's gradient, until all of it is encoded or the push is discarded.
  // Requires: chunk_bytes >= codec::kInt8BlockBytes. If the device encodes chunks of the shard, they were planned with
  // the same chunk_bytes.
  Push Cut(uint64_t begin, absl::Span<const float> values, uint64_t chunk_bytes) const;

  // Returns the chunks of [begin, end) that Cut() would encode.
  std::vector<PlannedChunk> PlanChunks(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const;
  // Returns whether the device encodes some of [begin, end).
  bool OnDevice(uint64_t begin, uint64_t end) const;

  // Returns a chunk's bytes, which the first call encodes.
  // Requires: a chunk whose run is lossy.
  const Push::Chunk& Encode(Push& push, size_t index);

  // Adds a push that the shard will never apply back to the residual: the encoded values and those not yet encoded.
  // Without a residual the gradient is lost, as with a discarded fp32 push.
  void Return(const Push& push);

  // Values that remain to be sent, as long as all runs together. Empty as long as no chunk with error feedback was
  // encoded.
  absl::Span<const float> residual() const { return residual_; }

 private:
  std::vector<Push::Chunk> CutRuns(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const;
  absl::Span<float> ResidualOf(const Push& push, const Push::Chunk& chunk);
  EncodedBytes TakeFromDevice(const Push& push, const Push::Chunk& chunk) const;

  const std::vector<CodecRun> runs_;
  const DevicePlan device_;
  // Residual of all runs together, allocated on first use.
  std::vector<float> residual_;
};

}  // namespace slackline::worker

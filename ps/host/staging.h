// Sub-pushes that are arriving: bytes that a server holds for others, counted and bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/codec/codec.h"
#include "common/rpc/frame.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Number of bytes that all shards of a server may stage together.
//
// Thread-safety: none; the sequencer owns it. Reservations must end before the budget does.
class StagingBudget {
 public:
  // Bytes taken out of the budget until the Reservation is destroyed.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(StagingBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) { budget_->used_ += bytes_; }
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->used_ -= bytes_;
    }

   private:
    StagingBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit StagingBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes `bytes` out of the budget.
  //   kResourceExhausted  there is no room now; the message names both numbers
  absl::StatusOr<Reservation> Reserve(uint64_t bytes);

  // Raises the budget to at least `bytes_max`.
  void Allow(uint64_t bytes_max) { bytes_max_ = std::max(bytes_max_, bytes_max); }

  uint64_t used() const { return used_; }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  uint64_t bytes_max_;
  uint64_t used_ = 0;
};

// Bytes of one sub-push, where they arrived, in order and without gaps. Each chunk has its own encoding.
//
// Thread-safety: none.
// Copies:        wire -> here: 0, but 1 by Own(), for chunks that ask for it, and for payloads of less than
//                kHeldBytesMin or a small part of their frame.
class StagedPush {
 public:
  struct Limits {
    // Number of elements of the whole sub-push.
    uint64_t elements = 0;
    uint64_t chunk_bytes_max = 0;
  };
  struct Chunk {
    // Index of the chunk's first element in the sub-push.
    uint64_t offset = 0;
    uint64_t elements = 0;
    codec::Codec codec = {};
    // True if the sub-push ends with this chunk.
    bool last = false;
    // True if others may change the bytes: they are copied first, and the copy is checked.
    bool copied = false;
  };
  // Limit on small chunks, because a chunk costs memory beside its bytes: a sub-push may have kSmallChunksMax chunks of
  // fewer than kChunkElementsMin elements, not counting its last chunk.
  static constexpr uint64_t kChunkElementsMin = 1024;
  static constexpr uint32_t kSmallChunksMax = 4096;
  // Smallest payload that stays in the frame that it came in. A smaller one would hold the whole frame's memory, so it
  // is copied out; so is a payload of less than one part in kHeldPartsMax of the frame.
  static constexpr size_t kHeldBytesMin = 4096;
  static constexpr size_t kHeldPartsMax = 8;

  StagedPush() = default;
  explicit StagedPush(StagingBudget::Reservation reservation) : reservation_(std::move(reservation)) {}

  // Appends a chunk.
  //   kInvalidArgument  out of order, too long, too many short chunks, a length that its elements cannot have in its
  //                     encoding, or values that codec::Checker refuses; nothing was appended
  absl::Status Add(const Chunk& chunk, const Limits& limits, rpc::Payload payload);

  // Copies the bytes, because others may change the originals from now on.
  void Own();

  // Payloads that keep the bytes of pieces() alive, also without this object.
  const std::vector<rpc::Payload>& chunks() const { return chunks_; }
  // Bytes of the sub-push. Neighbouring chunks of one encoding are one piece if that means the same.
  const std::vector<EncodedPiece>& pieces() const { return pieces_; }

 private:
  absl::Status CheckPlace(const Chunk& chunk, const Limits& limits) const;
  static absl::Status CheckLength(const Chunk& chunk, const Limits& limits, const rpc::Payload& payload);
  static absl::Status CheckValues(const Chunk& chunk, const rpc::Payload& payload);
  void Append(const Chunk& chunk, const ByteSegments& bytes);

  StagingBudget::Reservation reservation_;
  std::vector<rpc::Payload> chunks_;  // keep the memory behind pieces_ alive
  std::vector<EncodedPiece> pieces_;
  uint64_t received_ = 0;  // elements
  uint32_t small_chunks_ = 0;
};

}  // namespace slackline::ps

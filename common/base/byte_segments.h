// A sequence of bytes that lies in several pieces of memory, as it came from the network.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/types/span.h"

namespace slackline {

// Returns the memory of some floats.
inline absl::Span<const std::byte> AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

// Thread-safety: const calls are safe.
// Ownership:     borrows the bytes.
class ByteSegments {
 public:
  ByteSegments() = default;
  explicit ByteSegments(absl::Span<const std::byte> bytes) { Append(bytes); }

  void Append(absl::Span<const std::byte> bytes) {
    if (bytes.empty()) return;
    segments_.push_back(bytes);
    size_ += bytes.size();
  }
  void Append(const ByteSegments& more) {
    for (absl::Span<const std::byte> bytes : more.segments_) Append(bytes);
  }

  size_t size() const { return size_; }
  absl::Span<const absl::Span<const std::byte>> segments() const { return segments_; }

 private:
  std::vector<absl::Span<const std::byte>> segments_;
  size_t size_ = 0;
};

// Reads segments from front to back.
//
// Thread-safety: none.
class ByteReader {
 public:
  explicit ByteReader(const ByteSegments& bytes) : segments_(bytes.segments()), left_(bytes.size()) {}

  size_t left() const { return left_; }
  // Number of the bytes left that lie in one piece from the current position on.
  size_t contiguous_left() const { return segments_.empty() ? 0 : segments_.front().size() - offset_; }
  // Returns the next `size` bytes for use in place. Returns null if they do not lie in one piece.
  const std::byte* contiguous(size_t size) const {
    return size <= contiguous_left() && size > 0 ? segments_.front().data() + offset_ : nullptr;
  }
  // Skips the next `size` bytes.
  // Requires: size <= contiguous_left().
  void Skip(size_t size) {
    offset_ += size;
    left_ -= size;
    if (segments_.empty() || offset_ < segments_.front().size()) return;
    segments_.remove_prefix(1);
    offset_ = 0;
  }

  // Copies the next `size` bytes to `out`, also across segments.
  // Requires: size <= left().
  void Read(void* out, size_t size) {
    auto* to = static_cast<std::byte*>(out);
    while (size > 0) {
      const size_t piece = size < contiguous_left() ? size : contiguous_left();
      std::memcpy(to, segments_.front().data() + offset_, piece);
      to += piece;
      size -= piece;
      Skip(piece);
    }
  }

 private:
  absl::Span<const absl::Span<const std::byte>> segments_;
  size_t offset_ = 0;
  size_t left_;
};

}  // namespace slackline

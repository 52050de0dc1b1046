// A run of bytes that lies in several pieces of memory, as it came from the network.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/types/span.h"

namespace slackline {

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

  // Copies the next `size` bytes to `out`, across borders.
  // Requires: size <= left().
  void Read(void* out, size_t size) {
    auto* to = static_cast<std::byte*>(out);
    left_ -= size;
    while (size > 0) {
      const absl::Span<const std::byte> rest = segments_.front().subspan(offset_);
      const size_t piece = size < rest.size() ? size : rest.size();
      std::memcpy(to, rest.data(), piece);
      to += piece;
      size -= piece;
      offset_ += piece;
      if (offset_ == segments_.front().size()) {
        segments_.remove_prefix(1);
        offset_ = 0;
      }
    }
  }

 private:
  absl::Span<const absl::Span<const std::byte>> segments_;
  size_t offset_ = 0;
  size_t left_;
};

}  // namespace slackline

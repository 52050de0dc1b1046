// Draws the values that a target needs from a fuzzer's bytes, front to back. Once the bytes are used up, every value is
// 0 or empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::fuzz {

// Thread-safety: none.
// Ownership:     borrows the bytes.
class BytesInput {
 public:
  BytesInput(const uint8_t* data, size_t size) : left_(data, size) {}

  template <typename T>
  T Take() {
    T value = {};
    const size_t bytes = std::min(sizeof(value), left_.size());
    if (bytes > 0) std::memcpy(&value, left_.data(), bytes);
    left_.remove_prefix(bytes);
    return value;
  }
  // Returns a number from 0 to `max`.
  uint32_t TakeUpTo(uint32_t max) {
    const uint32_t value = max < 256 ? Take<uint8_t>() : Take<uint16_t>();
    return value % (max + 1);
  }
  absl::string_view TakeBytes(size_t bytes) {
    bytes = std::min(bytes, left_.size());
    const absl::string_view taken(reinterpret_cast<const char*>(left_.data()), bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  absl::string_view TakeRest() { return TakeBytes(left_.size()); }
  size_t left() const { return left_.size(); }

 private:
  absl::Span<const uint8_t> left_;
};

}  // namespace slackline::fuzz

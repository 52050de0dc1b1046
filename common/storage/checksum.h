// The 64-bit XXH3 of the bytes of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace slackline {

uint64_t ChecksumOf(absl::string_view bytes);

// Computes ChecksumOf() over bytes that come in parts.
class RunningChecksum {
 public:
  RunningChecksum();
  void Add(const void* data, size_t size);
  uint64_t value() const;

 private:
  const std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

}  // namespace slackline

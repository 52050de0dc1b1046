// Images that are made when they are needed.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace slackline::worker {

// Thread-safety: safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Writes channels x height x width bytes: image `index` of the data set.
  //   kDataLoss     neither it nor others in its place can be read; names the first
  virtual absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const = 0;
};

}  // namespace slackline::worker

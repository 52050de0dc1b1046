// ImageSource: images that are produced on demand.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace slackline::images {

// ImageSource reads single images of a data set.
//
// Thread-safety: safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Writes image `index` of the data set: channels x height x width bytes.
  //   kDataLoss     neither the image nor others in its place can be read; names the first
  virtual absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const = 0;
};

}  // namespace slackline::images

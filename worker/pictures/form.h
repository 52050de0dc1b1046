// The shape that all pictures of a data set get.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/prepared_index.h"
#include "worker/pictures/image.h"
#include "worker/pictures/source.h"

namespace slackline::worker::pictures {

// What somebody wants of it.
struct FormWish {
  std::string size;  // "WxH", "N" or empty: that of the first picture that can be read
  bool grey = false;
  Fit fit = Fit::kStretch;
  // What an error calls `size`: --size.
  std::string size_key;
};

// Without `scaled`, a picture of another size is passed over.
struct Form {
  ImageShape shape;
  bool scaled = false;
  Fit fit = Fit::kStretch;
  std::string size_key = "--size";
};

// Of a wish that has one: "64x48", or "64" of both.
//   kInvalidArgument  no such size
absl::StatusOr<Size> SizeOf(const FormWish& wish);

//   kInvalidArgument  no such size; or none of the pictures can be read, and says why the first cannot
absl::StatusOr<Form> MakeForm(const FormWish& wish, const Source& source);

// Reads and shapes a sample, and writes form.shape.values() of them, one channel after the other.
//   kInvalidArgument  as DecodeImage(), or of another size
//   kUnavailable      its file cannot be read
absl::Status ReadShaped(const Source& source, const Sample& sample, const Form& form, absl::Span<uint8_t> out);
// The same with 16 bits, as DecodeDeepImage() has them.
absl::Status ReadShaped(const Source& source, const Sample& sample, const Form& form, absl::Span<uint16_t> out);

}  // namespace slackline::worker::pictures

// Form: the common shape of all pictures in a data set.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "images/pictures/image.h"
#include "images/pictures/source.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images::pictures {

// The caller's requirements for the form.
struct FormWish {
  std::string size;  // "WxH", "N", or empty: the size of the first picture that can be read
  bool grey = false;
  Fit fit = Fit::kStretch;
  // Name of `size` in error messages: --size.
  std::string size_key;
};

// The resulting form. Unless `scaled`, pictures of another size are skipped.
struct Form {
  ImageShape shape;
  bool scaled = false;
  Fit fit = Fit::kStretch;
  std::string size_key = "--size";
};

// Returns the size of a wish that has one: "64x48", or "64" for both sides.
//   kInvalidArgument  the text is not a size
absl::StatusOr<Size> SizeOf(const FormWish& wish);

// Determines the form for a source.
//   kInvalidArgument  the text is not a size; or no picture can be read, and the message says why the first cannot
absl::StatusOr<Form> MakeForm(const FormWish& wish, const Source& source);

// Reads and shapes a sample, and writes form.shape.values() values, one channel after the other.
//   kInvalidArgument  as DecodeImage(), or the picture has another size
//   kUnavailable      the sample's file cannot be read
absl::Status ReadShaped(const Source& source, const Sample& sample, const Form& form, absl::Span<uint8_t> out);
// Shapes an image that was read already.
//   kInvalidArgument  the image has another size
absl::Status Shape(Image image, const Form& form, absl::Span<uint8_t> out);
absl::Status Shape(DeepImage image, const Form& form, absl::Span<uint16_t> out);

}  // namespace slackline::images::pictures

// Pictures in memory: out of JPEG and PNG, and into the shape that a data set has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::worker::pictures {

// Rows of pixels of `channels` interleaved values: grey, or red, green and blue.
template <typename Value>
struct BasicImage {
  uint32_t channels = 1;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<Value> pixels;
};
using Image = BasicImage<uint8_t>;
// White is 65535.
using DeepImage = BasicImage<uint16_t>;

// A picture with more pixels is taken for an attack on the memory.
inline constexpr uint64_t kPixelsMax = 100'000'000;

// What the first bytes say it is. Transparency is dropped, 16 bits become 8, palettes become colours; how a camera was
// held (EXIF) is not looked at.
//   kInvalidArgument  neither JPEG nor PNG, damaged, cut short, too large, or of colours for printing (CMYK)
absl::StatusOr<Image> DecodeImage(absl::string_view bytes);
// The same with 16 bits: those of the file where it is a PNG with so many, as they are; else 257 times its 8.
absl::StatusOr<DeepImage> DecodeDeepImage(absl::string_view bytes);
DeepImage Deepened(const Image& image);

// Each in its own file, which knows the library.
absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes);
absl::StatusOr<Image> DecodePng(absl::string_view bytes);
absl::StatusOr<DeepImage> DecodeDeepPng(absl::string_view bytes);

// With 1 or 3 channels; grey is (19595 R + 38470 G + 7471 B + 32768) / 65536, ITU-R 601-2 as Pillow rounds it.
Image WithChannels(Image image, uint32_t channels);
DeepImage WithChannels(DeepImage image, uint32_t channels);

enum class Fit {
  // Both sides are scaled, each as it needs.
  kStretch,
  // What is left over of the longer side is cut off on both ends, then it is scaled.
  kCrop,
};

struct Size {
  uint32_t width = 0;
  uint32_t height = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

// Scales with a triangle filter that widens when an image becomes smaller, as Pillow's BILINEAR does.
//   kInternal  no memory
absl::StatusOr<Image> Resize(Image image, Size size, Fit fit);
absl::StatusOr<DeepImage> Resize(DeepImage image, Size size, Fit fit);

// Writes channels x height x width values, one channel after the other.
void WritePlanes(const Image& image, absl::Span<uint8_t> out);
void WritePlanes(const DeepImage& image, absl::Span<uint16_t> out);

}  // namespace slackline::worker::pictures

// Pictures in memory: decodes JPEG and PNG, and converts pictures to the shape of a data set.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::images::pictures {

// Rows of pixels, each of `channels` interleaved values: grey, or red, green and blue.
template <typename Value>
struct BasicImage {
  uint32_t channels = 1;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<Value> pixels;
};
using Image = BasicImage<uint8_t>;
// An image of 16 bits. White is 65535.
using DeepImage = BasicImage<uint16_t>;

// Upper limit for pixels. A larger picture is treated as an attack on the memory.
inline constexpr uint64_t kPixelsMax = 100'000'000;

// Decodes a JPEG or PNG, recognised by its first bytes. Drops transparency, and converts 16 bits to 8 and palettes to
// colours. Ignores the orientation of the camera (EXIF).
//   kInvalidArgument  neither JPEG nor PNG, damaged, cut short, too large, or of colours for printing (CMYK)
absl::StatusOr<Image> DecodeImage(absl::string_view bytes);
// Decodes to 16 bits: the file's own values for a PNG of 16 bits; otherwise 257 times the values of 8 bits.
absl::StatusOr<DeepImage> DecodeDeepImage(absl::string_view bytes);
DeepImage Deepened(const Image& image);

// Decoders, each in its own file, which includes the library.
absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes);
absl::StatusOr<Image> DecodePng(absl::string_view bytes);
absl::StatusOr<DeepImage> DecodeDeepPng(absl::string_view bytes);

// Converts to 1 or 3 channels. Grey is (19595 R + 38470 G + 7471 B + 32768) / 65536, ITU-R 601-2 as Pillow rounds it.
Image WithChannels(Image image, uint32_t channels);
DeepImage WithChannels(DeepImage image, uint32_t channels);

enum class Fit {
  // Scales both sides, each by its own factor.
  kStretch,
  // Cuts the excess of the longer side off at both ends, and then scales.
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

}  // namespace slackline::images::pictures

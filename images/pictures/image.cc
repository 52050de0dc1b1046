#include "images/pictures/image.h"

#include <utility>

#include "absl/strings/match.h"
#include "common/base/check.h"

namespace slackline::images::pictures {
namespace {

// Of 8 bits and 16 alike: 65535 x 65536 is the largest sum.
template <typename Value>
BasicImage<Value> Recoloured(BasicImage<Value> image, uint32_t channels) {
  if (image.channels == channels) return image;
  BasicImage<Value> out{.channels = channels, .height = image.height, .width = image.width, .pixels = {}};
  const size_t pixels = size_t{image.height} * image.width;
  out.pixels.resize(pixels * channels);
  if (channels == 1) {
    for (size_t i = 0; i < pixels; ++i) {
      const Value* in = image.pixels.data() + 3 * i;
      out.pixels[i] = static_cast<Value>((in[0] * 19595u + in[1] * 38470u + in[2] * 7471u + 0x8000u) >> 16);
    }
    return out;
  }
  for (size_t i = 0; i < pixels; ++i) {
    for (uint32_t c = 0; c < channels; ++c) out.pixels[channels * i + c] = image.pixels[i];
  }
  return out;
}

template <typename Value>
void CopyPlanes(const BasicImage<Value>& image, absl::Span<Value> out) {
  const size_t pixels = size_t{image.height} * image.width;
  SLACKLINE_CHECK(out.size() == pixels * image.channels && image.pixels.size() == out.size());
  for (uint32_t c = 0; c < image.channels; ++c) {
    for (size_t i = 0; i < pixels; ++i) out[c * pixels + i] = image.pixels[i * image.channels + c];
  }
}

bool IsPng(absl::string_view bytes) { return absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n"); }

}  // namespace

absl::StatusOr<Image> DecodeImage(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) return DecodeJpeg(bytes);
  if (IsPng(bytes)) return DecodePng(bytes);
  return absl::InvalidArgumentError(bytes.empty() ? "the file is empty"
                                                  : "its first bytes are neither those of JPEG nor those of PNG");
}

absl::StatusOr<DeepImage> DecodeDeepImage(absl::string_view bytes) {
  if (IsPng(bytes)) return DecodeDeepPng(bytes);
  const absl::StatusOr<Image> image = DecodeImage(bytes);
  if (!image.ok()) return image.status();
  return Deepened(*image);
}

DeepImage Deepened(const Image& image) {
  DeepImage out{.channels = image.channels, .height = image.height, .width = image.width, .pixels = {}};
  out.pixels.reserve(image.pixels.size());
  for (const uint8_t value : image.pixels) out.pixels.push_back(static_cast<uint16_t>(value * 257));
  return out;
}

Image WithChannels(Image image, uint32_t channels) { return Recoloured(std::move(image), channels); }
DeepImage WithChannels(DeepImage image, uint32_t channels) { return Recoloured(std::move(image), channels); }

void WritePlanes(const Image& image, absl::Span<uint8_t> out) { CopyPlanes(image, out); }
void WritePlanes(const DeepImage& image, absl::Span<uint16_t> out) { CopyPlanes(image, out); }

}  // namespace slackline::images::pictures

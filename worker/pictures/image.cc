#include "worker/pictures/image.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace slackline::worker::pictures {

absl::StatusOr<Image> DecodeImage(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) return DecodeJpeg(bytes);
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) return DecodePng(bytes);
  return absl::InvalidArgumentError(bytes.empty() ? "the file is empty"
                                                  : "its first bytes are neither those of JPEG nor those of PNG");
}

Image WithChannels(Image image, uint32_t channels) {
  if (image.channels == channels) return image;
  Image out{.channels = channels, .height = image.height, .width = image.width, .pixels = {}};
  const size_t pixels = size_t{image.height} * image.width;
  out.pixels.resize(pixels * channels);
  if (channels == 1) {
    for (size_t i = 0; i < pixels; ++i) {
      const uint8_t* in = image.pixels.data() + 3 * i;
      out.pixels[i] = static_cast<uint8_t>((in[0] * 19595u + in[1] * 38470u + in[2] * 7471u + 0x8000u) >> 16);
    }
    return out;
  }
  for (size_t i = 0; i < pixels; ++i) {
    for (uint32_t c = 0; c < channels; ++c) out.pixels[channels * i + c] = image.pixels[i];
  }
  return out;
}

void WritePlanes(const Image& image, absl::Span<uint8_t> out) {
  const size_t pixels = size_t{image.height} * image.width;
  SLACKLINE_CHECK(out.size() == pixels * image.channels && image.pixels.size() == out.size());
  for (uint32_t c = 0; c < image.channels; ++c) {
    for (size_t i = 0; i < pixels; ++i) out[c * pixels + i] = image.pixels[i * image.channels + c];
  }
}

}  // namespace slackline::worker::pictures

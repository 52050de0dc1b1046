#include <png.h>

#include "absl/strings/str_cat.h"
#include "worker/pictures/image.h"

namespace slackline::worker::pictures {
namespace {

// What libpng keeps of a picture while it is read.
class PngReader {
 public:
  PngReader() { image_.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  png_image& image() { return image_; }
  absl::Status Error() const { return absl::InvalidArgumentError(absl::StrCat("damaged PNG: ", image_.message)); }

 private:
  png_image image_{};
};

}  // namespace

absl::StatusOr<Image> DecodePng(absl::string_view bytes) {
  PngReader reader;
  png_image& png = reader.image();
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return reader.Error();
  if (uint64_t{png.width} * png.height > kPixelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", png.width, "x", png.height, " pixels; allowed are at most ", kPixelsMax));
  }
  const bool coloured = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  const bool transparent = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = coloured ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  // Transparency is read and then dropped: laid over a colour it would change the picture.
  if (transparent) png.format |= PNG_FORMAT_FLAG_ALPHA;
  // 16 bits are no more light than 8.
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr) == 0) return reader.Error();
  Image image{.channels = coloured ? 3u : 1u, .height = png.height, .width = png.width, .pixels = {}};
  if (!transparent) {
    image.pixels = std::move(pixels);
    return image;
  }
  const size_t count = size_t{image.width} * image.height;
  const uint32_t read = image.channels + 1;
  image.pixels.resize(count * image.channels);
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t c = 0; c < image.channels; ++c) image.pixels[i * image.channels + c] = pixels[i * read + c];
  }
  return image;
}

}  // namespace slackline::worker::pictures

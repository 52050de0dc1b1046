#include <png.h>

#include <csetjmp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "images/pictures/image.h"

namespace slackline::images::pictures {
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

absl::Status CheckSides(const png_image& png) {
  if (uint64_t{png.width} * png.height <= kPixelsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", png.width, "x", png.height, " pixels; allowed are at most ", kPixelsMax));
}

constexpr size_t kMessageBytes = 128;

// libpng's own interface, which gives 16 bits as the file has them; the simple one takes them for light, and mixes
// colours with transparency.
//
// What libpng finds wrong it says by a jump to the call that it is in: none of them has anything to destroy.
class DeepReader {
 public:
  explicit DeepReader(absl::string_view bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &DeepReader::Fail, &DeepReader::Ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~DeepReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  DeepReader(const DeepReader&) = delete;
  DeepReader& operator=(const DeepReader&) = delete;

  // Everything before the pixels. False: message() says why.
  bool ReadHeader() {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &DeepReader::Read);
    png_read_info(png_, info_);
    png_set_strip_alpha(png_);
    png_set_swap(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  uint32_t channels() const { return png_get_channels(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  bool ReadRows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }
  absl::Status Error() const { return absl::InvalidArgumentError(absl::StrCat("damaged PNG: ", message_)); }

 private:
  static void Fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<DeepReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof(message_) - 1);
    png_longjmp(png, 1);
  }
  static void Ignore(png_structp /*png*/, png_const_charp /*message*/) {}
  static void Read(png_structp png, png_bytep out, size_t bytes) {
    auto* self = static_cast<DeepReader*>(png_get_io_ptr(png));
    if (bytes > self->left_.size()) png_error(png, "read beyond end of data");
    std::memcpy(out, self->left_.data(), bytes);
    self->left_.remove_prefix(bytes);
  }

  absl::string_view left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[kMessageBytes] = "no memory";
};

}  // namespace

absl::StatusOr<Image> DecodePng(absl::string_view bytes) {
  PngReader reader;
  png_image& png = reader.image();
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return reader.Error();
  if (absl::Status small = CheckSides(png); !small.ok()) return small;
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

absl::StatusOr<DeepImage> DecodeDeepPng(absl::string_view bytes) {
  DeepImage image;
  {
    PngReader reader;
    png_image& png = reader.image();
    if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return reader.Error();
    if ((png.format & PNG_FORMAT_FLAG_LINEAR) == 0) {  // 8 bits at most
      const absl::StatusOr<Image> shallow = DecodePng(bytes);
      if (!shallow.ok()) return shallow.status();
      return Deepened(*shallow);
    }
    if (absl::Status small = CheckSides(png); !small.ok()) return small;
    image = {.channels = 1, .height = png.height, .width = png.width, .pixels = {}};
  }
  DeepReader reader(bytes);
  if (!reader.ReadHeader()) return reader.Error();
  image.channels = reader.channels();
  const size_t row = size_t{image.channels} * image.width;
  SLACKLINE_CHECK((image.channels == 1 || image.channels == 3) && reader.row_bytes() == row * sizeof(uint16_t));
  image.pixels.resize(row * image.height);
  std::vector<png_bytep> rows;
  for (uint32_t y = 0; y < image.height; ++y)
    rows.push_back(reinterpret_cast<png_bytep>(image.pixels.data() + y * row));
  if (!reader.ReadRows(rows.data())) return reader.Error();
  return image;
}

}  // namespace slackline::images::pictures

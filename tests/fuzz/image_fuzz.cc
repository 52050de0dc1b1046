// Pictures: refused with a reason, or decoded to as many bytes as their shape has; as they are, in another number of
// channels, and in another size.
#include <algorithm>

#include "common/base/check.h"
#include "images/pictures/image.h"
#include "tests/fuzz/bytes_input.h"

namespace {

using slackline::images::pictures::Image;

// What may be decoded is larger than what the fuzzer may take of memory.
constexpr uint64_t kPixelsMax = 1 << 20;

// By the header of a PNG, or the markers of a JPEG that give a size: whichever number is large there.
bool IsLarge(absl::string_view bytes) {
  const auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = at; i < at + size && i < bytes.size(); ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  };
  if (bytes.substr(0, 1) == "\x89")
    return number(16, 4) > 4096 || number(20, 4) > 4096 || number(16, 4) * number(20, 4) > kPixelsMax;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] != '\xff' || (bytes[i + 1] & '\xf0') != '\xc0') continue;
    if (number(i + 5, 2) * number(i + 7, 2) > kPixelsMax) return true;
  }
  return false;
}

void CheckShape(const Image& image) {
  SLACKLINE_CHECK((image.channels == 1 || image.channels == 3) && image.height > 0 && image.width > 0);
  SLACKLINE_CHECK(image.pixels.size() == uint64_t{image.channels} * image.height * image.width);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace pictures = slackline::images::pictures;
  slackline::fuzz::BytesInput input(data, size);
  const uint32_t channels = input.TakeUpTo(1) == 0 ? 1 : 3;
  const auto fit = input.TakeUpTo(1) == 0 ? pictures::Fit::kStretch : pictures::Fit::kCrop;
  const pictures::Size wanted = {.width = 1 + input.TakeUpTo(20), .height = 1 + input.TakeUpTo(20)};
  const absl::string_view bytes = input.TakeRest();
  if (IsLarge(bytes)) return 0;
  absl::StatusOr<Image> image = pictures::DecodeImage(bytes);
  if (!image.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(image.status()) && !image.status().message().empty());
    return 0;
  }
  CheckShape(*image);
  const absl::StatusOr<Image> fitted =
      pictures::Resize(pictures::WithChannels(*std::move(image), channels), wanted, fit);
  SLACKLINE_CHECK(fitted.ok());
  CheckShape(*fitted);
  SLACKLINE_CHECK(fitted->channels == channels && fitted->width == wanted.width && fitted->height == wanted.height);
  return 0;
}

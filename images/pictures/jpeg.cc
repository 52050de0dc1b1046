#include <turbojpeg.h>

#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "images/pictures/image.h"

namespace slackline::images::pictures {
namespace {

struct DestroyDecoder {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};
using JpegDecoder = std::unique_ptr<std::remove_pointer_t<tjhandle>, DestroyDecoder>;

absl::Status JpegError(const JpegDecoder& decoder) {
  return absl::InvalidArgumentError(absl::StrCat("damaged JPEG: ", tjGetErrorStr2(decoder.get())));
}

}  // namespace

absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes) {
  const JpegDecoder decoder(tjInitDecompress());
  if (decoder == nullptr) return absl::InternalError("no memory for a JPEG decoder");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &subsampling, &colours) != 0) {
    return JpegError(decoder);
  }
  if (width < 1 || height < 1 || uint64_t(width) * uint64_t(height) > kPixelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", width, "x", height, " pixels; allowed are at most ", kPixelsMax));
  }
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
    return absl::InvalidArgumentError("a JPEG with CMYK colours; allowed are grey and RGB");
  }
  Image image;
  image.channels = colours == TJCS_GRAY ? 1 : 3;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  image.pixels.resize(size_t{image.channels} * image.width * image.height);
  // Warnings are about pixels that are not there, or are not what they were.
  const int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  if (tjDecompress2(decoder.get(), data, bytes.size(), image.pixels.data(), width, 0, height,
                    image.channels == 1 ? TJPF_GRAY : TJPF_RGB, flags) != 0) {
    return JpegError(decoder);
  }
  return image;
}

}  // namespace slackline::images::pictures

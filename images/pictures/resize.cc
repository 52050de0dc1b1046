#include <string_view>

#include "common/base/check.h"

// Before weights are made to sum to 1 stb wants their sum to be near it. Where an image becomes a little smaller it is
// not, of which nobody is at fault; all that stb wants otherwise holds unless there is a bug.
#define STBIR_ASSERT(holds) SLACKLINE_CHECK((holds) || std::string_view(#holds).substr(0, 6) == "total ")
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#define STB_IMAGE_RESIZE_STATIC
#include <stb/stb_image_resize.h>

#include <algorithm>
#include <utility>

#include "images/pictures/image.h"

namespace slackline::images::pictures {
namespace {

struct Part {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

// The largest part in the middle that has the shape of `size`.
template <typename Value>
Part MiddleOf(const BasicImage<Value>& image, Size size) {
  Part part{.left = 0, .top = 0, .width = image.width, .height = image.height};
  const uint64_t across = uint64_t{image.width} * size.height, down = uint64_t{image.height} * size.width;
  if (across > down) part.width = static_cast<uint32_t>(std::max<uint64_t>(1, down / size.height));
  if (across < down) part.height = static_cast<uint32_t>(std::max<uint64_t>(1, across / size.width));
  part.left = (image.width - part.width) / 2;
  part.top = (image.height - part.height) / 2;
  return part;
}

auto* ScaleOf(const uint8_t* /*values*/) { return stbir_resize_uint8_generic; }
auto* ScaleOf(const uint16_t* /*values*/) { return stbir_resize_uint16_generic; }

template <typename Value>
absl::StatusOr<BasicImage<Value>> Resized(BasicImage<Value> image, Size size, Fit fit) {
  if (image.width == size.width && image.height == size.height) return image;
  const Part part = fit == Fit::kCrop ? MiddleOf(image, size)
                                      : Part{.left = 0, .top = 0, .width = image.width, .height = image.height};
  BasicImage<Value> out{.channels = image.channels, .height = size.height, .width = size.width, .pixels = {}};
  out.pixels.resize(size_t{size.width} * size.height * image.channels);
  const auto channels = static_cast<int>(image.channels);
  const size_t row = size_t{image.width} * image.channels;
  const Value* in = image.pixels.data() + part.top * row + size_t{part.left} * image.channels;
  if (ScaleOf(in)(in, static_cast<int>(part.width), static_cast<int>(part.height),
                  static_cast<int>(row * sizeof(Value)), out.pixels.data(), static_cast<int>(size.width),
                  static_cast<int>(size.height), 0, channels, STBIR_ALPHA_CHANNEL_NONE, 0, STBIR_EDGE_CLAMP,
                  STBIR_FILTER_TRIANGLE, STBIR_COLORSPACE_LINEAR, nullptr) == 0) {
    return absl::InternalError("no memory to scale it");
  }
  return out;
}

}  // namespace

absl::StatusOr<Image> Resize(Image image, Size size, Fit fit) { return Resized(std::move(image), size, fit); }
absl::StatusOr<DeepImage> Resize(DeepImage image, Size size, Fit fit) { return Resized(std::move(image), size, fit); }

}  // namespace slackline::images::pictures

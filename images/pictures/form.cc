#include "images/pictures/form.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace slackline::images::pictures {
namespace {

constexpr uint32_t kSideMax = 8192;

// That of the first picture that can be read.
absl::StatusOr<Size> FirstSize(const FormWish& wish, const Source& source) {
  std::string first;
  for (const Sample& sample : source.samples()) {
    const absl::StatusOr<Image> image = source.Read(sample);
    if (image.ok() && image->width <= kSideMax && image->height <= kSideMax) {
      return Size{.width = image->width, .height = image->height};
    }
    const std::string why =
        image.ok() ? absl::StrCat("a side is longer than ", kSideMax, " pixels; ", wish.size_key, " scales it")
                   : std::string(image.status().message());
    if (first.empty()) first = absl::StrCat(sample.name, ": ", why);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("none of the ", source.samples().size(), " images can be prepared; the first is ", first));
}

template <typename Value>
absl::Status ShapeAny(absl::StatusOr<BasicImage<Value>> image, const Form& form, absl::Span<Value> out) {
  if (!image.ok()) return image.status();
  const Size size{.width = form.shape.width, .height = form.shape.height};
  if (!form.scaled && Size{.width = image->width, .height = image->height} != size) {
    return absl::InvalidArgumentError(absl::StrCat("has ", image->width, "x", image->height,
                                                   " pixels, the first image ", size.width, "x", size.height, "; ",
                                                   form.size_key, " scales them"));
  }
  image = Resize(WithChannels(*std::move(image), form.shape.channels), size, form.fit);
  if (!image.ok()) return image.status();
  WritePlanes(*image, out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Size> SizeOf(const FormWish& wish) {
  const std::vector<std::string> sides = absl::StrSplit(wish.size, 'x');
  Size size;
  const bool ok = sides.size() <= 2 && absl::SimpleAtoi(sides.front(), &size.width) &&
                  absl::SimpleAtoi(sides.back(), &size.height) && size.width >= 1 && size.width <= kSideMax &&
                  size.height >= 1 && size.height <= kSideMax;
  if (ok) return size;
  return absl::InvalidArgumentError(absl::StrCat("found ", wish.size_key, " ", wish.size,
                                                 "; allowed are N or WIDTHxHEIGHT, with sides of 1 to ", kSideMax,
                                                 " pixels"));
}

absl::StatusOr<Form> MakeForm(const FormWish& wish, const Source& source) {
  Form form;
  form.scaled = !wish.size.empty();
  form.fit = wish.fit;
  form.size_key = wish.size_key;
  const absl::StatusOr<Size> size = form.scaled ? SizeOf(wish) : FirstSize(wish, source);
  if (!size.ok()) return size.status();
  form.shape = {wish.grey ? 1 : source.channels(), size->height, size->width};
  return form;
}

absl::Status ReadShaped(const Source& source, const Sample& sample, const Form& form, absl::Span<uint8_t> out) {
  return ShapeAny(source.Read(sample), form, out);
}

absl::Status Shape(Image image, const Form& form, absl::Span<uint8_t> out) {
  return ShapeAny(absl::StatusOr<Image>(std::move(image)), form, out);
}

absl::Status Shape(DeepImage image, const Form& form, absl::Span<uint16_t> out) {
  return ShapeAny(absl::StatusOr<DeepImage>(std::move(image)), form, out);
}

}  // namespace slackline::images::pictures

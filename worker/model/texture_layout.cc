#include "worker/model/texture_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace slackline::worker {

std::vector<LayerShape> TextureLinears(const ModelSpec& spec) {
  std::vector<LayerShape> layers;
  uint64_t inputs = kTextureFilters2;
  std::vector<uint32_t> widths = spec.hidden;
  if (!spec.self_supervised.on()) widths.push_back(spec.classes);
  for (uint32_t width : widths) {
    layers.push_back({.inputs = inputs, .outputs = width});
    inputs = width;
  }
  return layers;
}

absl::Status AddTexture(const ModelSpec& spec, LayoutBuilder& builder) {
  if (spec.channels == 0 || std::min(spec.height, spec.width) < kTextureSideMin) {
    return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                   " are too small: at least 1 x ", kTextureSideMin, " x ",
                                                   kTextureSideMin, " is needed for ", KindName(spec.kind)));
  }
  if (std::count(spec.hidden.begin(), spec.hidden.end(), 0u) > 0) {
    return absl::InvalidArgumentError("a layer of the model has 0 units; at least 1 is needed");
  }
  builder.Convolution(
      "conv1",
      {.channels = {.inputs = spec.channels, .outputs = kTextureFilters1}, .window = kTextureWindow1, .bias = true});
  builder.Convolution("conv2",
                      {.channels = {kTextureFilters1, kTextureFilters2}, .window = kTextureWindow2, .bias = true});
  size_t number = 0;
  for (const LayerShape& layer : TextureLinears(spec)) builder.Linear(absl::StrCat("fc", ++number), layer);
  return absl::OkStatus();
}

}  // namespace slackline::worker

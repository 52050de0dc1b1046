#include "worker/model/vit_layout.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::worker {
namespace {

// Of the layer between fc1 and fc2.
constexpr uint64_t kHiddenWidths = 4;

absl::Status CheckPatches(const ModelSpec& spec) {
  if (spec.channels == 0 || spec.height == 0 || spec.width == 0) {
    return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                   " do not fit: ", KindName(spec.kind),
                                                   " needs a channel and a pixel at least"));
  }
  if (spec.patch_size > 0 && spec.height % spec.patch_size == 0 && spec.width % spec.patch_size == 0) {
    return absl::OkStatus();
  }
  std::vector<uint32_t> allowed;
  const uint32_t both = std::gcd(spec.height, spec.width);
  for (uint32_t side = 1; side <= both; ++side) {
    if (both % side == 0) allowed.push_back(side);
  }
  return absl::InvalidArgumentError(absl::StrCat("model.patch_size is ", spec.patch_size, ", images are ", spec.width,
                                                 "x", spec.height,
                                                 "; allowed is what divides both: ", absl::StrJoin(allowed, ", ")));
}

}  // namespace

VitShape ShapeOfVit(const ModelSpec& spec) {
  constexpr uint64_t kHeadWidth = 64;
  VitShape shape;
  shape.heads = FactsOf(spec.kind).heads;
  shape.width = shape.heads * kHeadWidth;
  shape.tokens = uint64_t{spec.height / spec.patch_size} * (spec.width / spec.patch_size) + 1;
  return shape;
}

std::vector<LayerPlan> LayersOfVit(const ModelSpec& spec) {
  // Each token takes this many products of width x width: qkv 3, proj 1, fc1 and fc2 4 each.
  constexpr double kProducts = 12;
  constexpr size_t kBlockTensors = 12;
  const VitShape shape = ShapeOfVit(spec);
  const auto width = static_cast<double>(shape.width), tokens = static_cast<double>(shape.tokens);
  const double pixels = static_cast<double>(spec.channels) * spec.height * spec.width;
  // cls_token, pos_embed, and the patches' weight and bias.
  std::vector<LayerPlan> layers = {{.cost = pixels * width, .tensors = 4}};
  const double block = kProducts * width * width * tokens + 2 * tokens * tokens * width;
  layers.insert(layers.end(), kVitBlocks, {.cost = block, .tensors = kBlockTensors});
  layers.push_back({.cost = width * spec.classes, .tensors = 4});
  return layers;
}

std::string VitBlockName(uint64_t block) { return absl::StrCat("blocks.", block, "."); }

absl::Status AddVit(const ModelSpec& spec, LayoutBuilder& builder) {
  if (absl::Status status = CheckPatches(spec); !status.ok()) return status;
  const VitShape shape = ShapeOfVit(spec);
  const uint64_t width = shape.width, hidden = kHiddenWidths * width;
  builder.Parameter("cls_token", {1, 1, width});
  builder.Parameter("pos_embed", {1, shape.tokens, width});
  builder.Convolution(
      "patch_embed.proj",
      {.channels = {.inputs = spec.channels, .outputs = width}, .window = spec.patch_size, .bias = true});
  for (uint64_t i = 0; i < kVitBlocks; ++i) {
    const std::string block = VitBlockName(i);
    builder.LayerNorm(block + "norm1", width);
    builder.Linear(block + "attn.qkv", {.inputs = width, .outputs = 3 * width});
    builder.Linear(block + "attn.proj", {.inputs = width, .outputs = width});
    builder.LayerNorm(block + "norm2", width);
    builder.Linear(block + "mlp.fc1", {.inputs = width, .outputs = hidden});
    builder.Linear(block + "mlp.fc2", {.inputs = hidden, .outputs = width});
  }
  builder.LayerNorm("norm", width);
  if (spec.self_supervised.on()) return absl::OkStatus();
  builder.Linear("head", {.inputs = width, .outputs = spec.classes});
  return absl::OkStatus();
}

}  // namespace slackline::worker

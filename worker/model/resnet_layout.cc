#include "worker/model/resnet_layout.h"

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

// `width`: channels inside.
ResnetBlock PlainBlock(uint64_t inputs, uint64_t width, uint64_t stride) {
  return {.name = "",
          .path = {{.channels = {inputs, width}, .window = 3, .stride = stride},
                   {.channels = {width, width}, .window = 3, .stride = 1}},
          .channels = {inputs, width},
          .stride = stride};
}

ResnetBlock Bottleneck(uint64_t inputs, uint64_t width, uint64_t stride) {
  constexpr uint64_t kExpansion = 4;
  const uint64_t outputs = kExpansion * width;
  return {.name = "",
          .path = {{.channels = {inputs, width}, .window = 1, .stride = 1},
                   {.channels = {width, width}, .window = 3, .stride = stride},
                   {.channels = {width, outputs}, .window = 1, .stride = 1}},
          .channels = {inputs, outputs},
          .stride = stride};
}

void AddBlock(const ResnetBlock& block, LayoutBuilder& builder) {
  for (size_t i = 0; i < block.path.size(); ++i) {
    const BlockConvolution& layer = block.path[i];
    builder.Convolution(absl::StrCat(block.name, ".conv", i + 1), {.channels = layer.channels, .window = layer.window});
    builder.BatchNorm(absl::StrCat(block.name, ".bn", i + 1), layer.channels.outputs);
  }
  if (!block.downsamples()) return;
  builder.Convolution(block.name + ".downsample.0", {.channels = block.channels, .window = kDownsampleWindow});
  builder.BatchNorm(block.name + ".downsample.1", block.channels.outputs);
}

}  // namespace

std::vector<ResnetBlock> ResnetBlocks(ModelKind kind) {
  std::vector<ResnetBlock> blocks;
  const ModelFacts& facts = FactsOf(kind);
  uint64_t inputs = kStemChannels;
  // Each layer has twice the channels of the one before, on half its image.
  for (size_t layer = 0; layer < facts.blocks.size(); ++layer) {
    const uint64_t width = kStemChannels << layer;
    for (uint64_t i = 0; i < facts.blocks[layer]; ++i) {
      const uint64_t stride = layer > 0 && i == 0 ? 2 : 1;
      blocks.push_back(facts.bottlenecks ? Bottleneck(inputs, width, stride) : PlainBlock(inputs, width, stride));
      blocks.back().name = absl::StrCat("layer", layer + 1, ".", i);
      inputs = blocks.back().channels.outputs;
    }
  }
  return blocks;
}

// The windows are padded, so that an image of any size is large enough.
absl::Status AddResnet(const ModelSpec& spec, LayoutBuilder& builder) {
  if ((spec.channels != 1 && spec.channels != 3) || spec.height == 0 || spec.width == 0) {
    return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                   " do not fit: a resnet needs 1 or 3 channels and a pixel at least"));
  }
  builder.Convolution("conv1",
                      {.channels = {.inputs = spec.channels, .outputs = kStemChannels}, .window = kStemWindow});
  builder.BatchNorm("bn1", kStemChannels);
  const std::vector<ResnetBlock> blocks = ResnetBlocks(spec.kind);
  for (const ResnetBlock& block : blocks) AddBlock(block, builder);
  if (spec.self_supervised.on()) return absl::OkStatus();
  builder.Linear("fc", {.inputs = blocks.back().channels.outputs, .outputs = spec.classes});
  return absl::OkStatus();
}

}  // namespace slackline::worker

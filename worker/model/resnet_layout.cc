#include "worker/model/resnet_layout.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace slackline::worker {
namespace {

// How many blocks layer1 ... layer4 have. Each layer has twice the channels of the one before, on half its image.
std::vector<uint64_t> BlocksOf(ModelKind kind) {
  SLACKLINE_CHECK(kind == ModelKind::kResnet18);
  return {2, 2, 2, 2};
}

void AddBlock(const ResnetBlock& block, LayoutBuilder& builder) {
  const auto [inputs, outputs] = block.channels;
  builder.Convolution(block.name + ".conv1", {.channels = block.channels, .window = kBlockWindow});
  builder.BatchNorm(block.name + ".bn1", outputs);
  builder.Convolution(block.name + ".conv2", {.channels = {outputs, outputs}, .window = kBlockWindow});
  builder.BatchNorm(block.name + ".bn2", outputs);
  if (!block.downsamples()) return;
  builder.Convolution(block.name + ".downsample.0", {.channels = block.channels, .window = kDownsampleWindow});
  builder.BatchNorm(block.name + ".downsample.1", outputs);
}

}  // namespace

std::vector<ResnetBlock> ResnetBlocks(ModelKind kind) {
  std::vector<ResnetBlock> blocks;
  const std::vector<uint64_t> counts = BlocksOf(kind);
  uint64_t inputs = kStemChannels;
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    const uint64_t outputs = kStemChannels << layer;
    for (uint64_t i = 0; i < counts[layer]; ++i) {
      blocks.push_back({.name = absl::StrCat("layer", layer + 1, ".", i),
                        .channels = {.inputs = inputs, .outputs = outputs},
                        .stride = layer > 0 && i == 0 ? uint64_t{2} : uint64_t{1}});
      inputs = outputs;
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
  builder.Linear("fc", {.inputs = blocks.back().channels.outputs, .outputs = spec.classes});
  return absl::OkStatus();
}

}  // namespace slackline::worker

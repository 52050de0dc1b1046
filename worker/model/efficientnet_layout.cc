#include "worker/model/efficientnet_layout.h"

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

// A stage of table 1.
struct MobileStage {
  uint64_t expansion = 1;
  uint64_t window = 3;
  uint64_t stride = 1;  // of its first block
  uint64_t outputs = 0;
  uint64_t blocks = 1;
};

constexpr MobileStage kMobileStages[] = {
    {.expansion = 1, .window = 3, .stride = 1, .outputs = 16, .blocks = 1},
    {.expansion = 6, .window = 3, .stride = 2, .outputs = 24, .blocks = 2},
    {.expansion = 6, .window = 5, .stride = 2, .outputs = 40, .blocks = 2},
    {.expansion = 6, .window = 3, .stride = 2, .outputs = 80, .blocks = 3},
    {.expansion = 6, .window = 5, .stride = 1, .outputs = 112, .blocks = 3},
    {.expansion = 6, .window = 5, .stride = 2, .outputs = 192, .blocks = 4},
    {.expansion = 6, .window = 3, .stride = 1, .outputs = 320, .blocks = 1},
};
// Of a block's inputs.
constexpr uint64_t kSqueeze = 4;

// A convolution without bias, and its batch normalisation.
void AddNormed(const std::string& name, const ConvolutionShape& shape, LayoutBuilder& builder) {
  builder.Convolution(name + ".0", shape);
  builder.BatchNorm(name + ".1", shape.channels.outputs);
}

void AddMobileBlock(const MobileBlock& block, LayoutBuilder& builder) {
  const auto [inputs, outputs] = block.channels;
  if (block.expands()) AddNormed(block.expand(), {.channels = {inputs, block.expanded}}, builder);
  AddNormed(block.depthwise(), {.channels = {1, block.expanded}, .window = block.window}, builder);
  builder.Convolution(block.squeeze() + ".fc1", {.channels = {block.expanded, block.squeezed}, .bias = true});
  builder.Convolution(block.squeeze() + ".fc2", {.channels = {block.squeezed, block.expanded}, .bias = true});
  AddNormed(block.project(), {.channels = {block.expanded, outputs}}, builder);
}

}  // namespace

std::vector<MobileBlock> EfficientnetBlocks() {
  std::vector<MobileBlock> blocks;
  uint64_t inputs = kEfficientnetStemChannels, number = 0;
  for (const MobileStage& stage : kMobileStages) {
    ++number;
    for (uint64_t i = 0; i < stage.blocks; ++i) {
      MobileBlock block;
      block.name = absl::StrCat("features.", number, ".", i, ".block");
      block.channels = {.inputs = inputs, .outputs = stage.outputs};
      block.expanded = inputs * stage.expansion;
      block.squeezed = inputs / kSqueeze;
      block.window = stage.window;
      block.stride = i == 0 ? stage.stride : 1;
      blocks.push_back(block);
      inputs = stage.outputs;
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].depth = static_cast<double>(i) / static_cast<double>(blocks.size());
  }
  return blocks;
}

// The windows are padded, so that an image of any size is large enough.
absl::Status AddEfficientnet(const ModelSpec& spec, LayoutBuilder& builder) {
  if (spec.channels == 0 || spec.height == 0 || spec.width == 0) {
    return absl::InvalidArgumentError(absl::StrCat("images of ", spec.channels, " x ", spec.height, " x ", spec.width,
                                                   " do not fit: ", KindName(spec.kind),
                                                   " needs a channel and a pixel at least"));
  }
  AddNormed(
      kEfficientnetStem,
      {.channels = {.inputs = spec.channels, .outputs = kEfficientnetStemChannels}, .window = kEfficientnetStemWindow},
      builder);
  const std::vector<MobileBlock> blocks = EfficientnetBlocks();
  for (const MobileBlock& block : blocks) AddMobileBlock(block, builder);
  AddNormed(kEfficientnetHead, {.channels = {blocks.back().channels.outputs, kEfficientnetHeadChannels}}, builder);
  if (spec.self_supervised.on()) return absl::OkStatus();
  builder.Linear(kEfficientnetClassifier, {.inputs = kEfficientnetHeadChannels, .outputs = spec.classes});
  return absl::OkStatus();
}

}  // namespace slackline::worker

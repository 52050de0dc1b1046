// Layout of residual networks (He, Zhang, Ren, Sun: Deep residual learning for image recognition, 2016) as torchvision
// builds them.
//
//   conv1 7x7/2 - bn1 - ReLU - max pooling 3x3/2 - layer1 - layer2 - layer3 - layer4 - mean of the image - fc
//
// A layer is a row of blocks. Each block is conv1 3x3 - bn1 - ReLU - conv2 3x3 - bn2, plus the block's input, then
// ReLU. Blocks of ResNet-50 are bottlenecks: conv1 1x1 - bn1 - ReLU - conv2 3x3 - bn2 - ReLU - conv3 1x1 - bn3, with
// four times as many outputs as conv2. If a block changes the shape, the input goes through downsample: convolution
// 1x1, then batch normalisation.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Sides of the windows of the stem and of a downsample.
inline constexpr uint64_t kStemWindow = 7;
inline constexpr uint64_t kStemPooling = 3;
inline constexpr uint64_t kDownsampleWindow = 1;
// Step of the stem's convolution and of its pooling.
inline constexpr uint64_t kStemStride = 2;
// Channels after the stem.
inline constexpr uint64_t kStemChannels = 64;

struct BlockConvolution {
  LayerShape channels;
  uint64_t window = 1;  // side of the window
  uint64_t stride = 1;
};

struct ResnetBlock {
  std::string name;                    // name of the block, for example "layer1.0"
  std::vector<BlockConvolution> path;  // conv1, conv2, ...
  LayerShape channels;                 // channels of the whole block
  uint64_t stride = 1;

  bool downsamples() const { return stride != 1 || channels.inputs != channels.outputs; }
};

// Returns all blocks in the order of the forward pass. The last block's outputs are the inputs of fc.
std::vector<ResnetBlock> ResnetBlocks(ModelKind kind);

// Adds the tensors under torchvision's names: conv1.weight, bn1.*, layer1.0.conv1.weight, ..., fc.bias.
//   kInvalidArgument  the spec cannot be built; says why
absl::Status AddResnet(const ModelSpec& spec, LayoutBuilder& builder);

}  // namespace slackline::worker

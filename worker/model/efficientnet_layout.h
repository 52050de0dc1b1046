// Layout of EfficientNet-B0 (Tan, Le: EfficientNet: rethinking model scaling for convolutional neural networks, 2019)
// as torchvision builds it.
//
//   features.0: convolution 3x3/2, 32 - features.1 ... features.7: blocks - features.8: convolution 1x1, 1280 - mean of
//   the image - dropout - classifier.1
//
// Batch normalisation and SiLU follow each convolution. A block (MBConv) is
//
//   expand 1x1 - depthwise - squeeze and excite (mean of the image - fc1 - SiLU - fc2 - sigmoid - scale) - project 1x1
//
// with no SiLU after project, and no expand in features.1. If input and output have the same shape, the input is added,
// and in training the block's own part is left out for some images.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"

namespace slackline::worker {

inline constexpr uint64_t kEfficientnetStemWindow = 3;
inline constexpr uint64_t kEfficientnetStemChannels = 32;
inline constexpr uint64_t kEfficientnetStemStride = 2;
inline constexpr uint64_t kEfficientnetHeadChannels = 1280;
inline constexpr char kEfficientnetStem[] = "features.0";
inline constexpr char kEfficientnetHead[] = "features.8";
inline constexpr char kEfficientnetClassifier[] = "classifier.1";

struct MobileBlock {
  std::string name;  // name of the block, for example "features.2.0.block"
  LayerShape channels;
  uint64_t expanded = 0;  // channels inside the block
  uint64_t squeezed = 0;  // channels between fc1 and fc2
  uint64_t window = 3;    // side of the depthwise convolution
  uint64_t stride = 1;    // stride of the depthwise convolution
  double depth = 0;       // position among all blocks: 0 for the first, below 1 for the last

  bool expands() const { return expanded != channels.inputs; }
  bool adds_input() const { return stride == 1 && channels.inputs == channels.outputs; }
  // Names of the block's members, for example "features.2.0.block.1". Depthwise, squeeze and excite, and project come
  // after expand if the block has one.
  std::string expand() const { return name + ".0"; }
  std::string depthwise() const { return name + (expands() ? ".1" : ".0"); }
  std::string squeeze() const { return name + (expands() ? ".2" : ".1"); }
  std::string project() const { return name + (expands() ? ".3" : ".2"); }
};

// Returns all blocks in the order of the forward pass.
std::vector<MobileBlock> EfficientnetBlocks();

// Adds the tensors under torchvision's names: features.0.0.weight, features.0.1.*, features.1.0.block.0.0.weight, ...,
// classifier.1.bias.
//   kInvalidArgument  the spec cannot be built; says why
absl::Status AddEfficientnet(const ModelSpec& spec, LayoutBuilder& builder);

}  // namespace slackline::worker

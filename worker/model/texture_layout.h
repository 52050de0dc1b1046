// Layout of T-CNN-2 (Andrearczyk, Whelan: Using filter banks in convolutional neural networks for texture
// classification, 2016), a network for textures, where the amount of a pattern matters and not its place.
//
//   conv1 11x11/4, 96 - ReLU - max pooling 3x3/2 - conv2 5x5, 256 - ReLU - energy - fc1 - ReLU - ... - the last fc
//
// The energy layer is the mean of each filter's rectified output over the whole image. Fully connected layers are
// AlexNet's, with dropout before all but the first. Unlike in the paper, conv2 is not in two groups and there is no
// local response normalisation, as in AlexNet's later version (Krizhevsky: One weird trick, 2014). The paddings are
// torchvision's for AlexNet.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"

namespace slackline::worker {

inline constexpr uint64_t kTextureWindow1 = 11;
inline constexpr uint64_t kTextureStride1 = 4;
inline constexpr uint64_t kTexturePadding1 = 2;
inline constexpr uint64_t kTextureFilters1 = 96;
inline constexpr uint64_t kTexturePooling = 3;
inline constexpr uint64_t kTexturePoolingStride = 2;
inline constexpr uint64_t kTextureWindow2 = 5;
inline constexpr uint64_t kTextureFilters2 = 256;
// Smallest side of an image. With smaller images nothing is left to pool.
inline constexpr uint64_t kTextureSideMin = 15;

// Returns the widths of the fully connected layers.
std::vector<LayerShape> TextureLinears(const ModelSpec& spec);

// Adds the tensors under the names conv1, conv2, fc1, fc2, ...
//   kInvalidArgument  the spec cannot be built; says why
absl::Status AddTexture(const ModelSpec& spec, LayoutBuilder& builder);

}  // namespace slackline::worker

// Layout of the mlp and the cnn: convolutions (none for mlp), each followed by 2x2 pooling, then fully connected
// layers.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

// Side of a convolution's window; its padding keeps the image's size.
inline constexpr uint64_t kChainWindow = 3;
// Side of the pooling that follows each convolution.
inline constexpr uint64_t kChainPooling = 2;

struct ChainShape {
  std::vector<LayerShape> convolutions;
  std::vector<LayerShape> linears;
};

// Returns the shapes of all layers. Requires: AddChain() accepts the spec.
ChainShape ShapeOfChain(const ModelSpec& spec);

// Returns each convolution, with the layers that follow it, and each fully connected layer.
std::vector<LayerPlan> LayersOfChain(const ModelSpec& spec);

// Adds the tensors under the names of a PyTorch module with members conv1, bn1, conv2, bn2, fc1, fc2, ...
//   kInvalidArgument  the spec cannot be built; says why
absl::Status AddChain(const ModelSpec& spec, LayoutBuilder& builder);

}  // namespace slackline::worker

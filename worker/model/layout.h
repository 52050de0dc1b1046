// Which tensors a network has, and where each lies in the flat vector. No LibTorch here: what a model is made of can
// be asked without building it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// One fully connected step of the network, or one convolution.
struct LayerShape {
  uint64_t inputs = 0;  // features, or channels of a convolution
  uint64_t outputs = 0;
};

// Invariant: tensors lie one behind the other in the order of `tensors`; trained ones first.
struct Layout {
  // Both networks are convolutions (none for mlp), each followed by 2x2 pooling, then fully connected layers.
  std::vector<LayerShape> convolutions;
  std::vector<LayerShape> linears;
  std::vector<TensorInfo> tensors;
  uint64_t trained_elements = 0;
  uint64_t elements = 0;
};

// Side of a convolution's window; its padding keeps the image's size.
inline constexpr uint64_t kWindow = 3;
// Side of the pooling that follows each convolution.
inline constexpr uint64_t kPooling = 2;
// Largest model, in elements: 16 GiB of float32.
inline constexpr uint64_t kElementsMax = uint64_t{1} << 32;

// Names are those of a PyTorch module with members conv1, bn1, conv2, bn2, fc1, fc2, ...
//   kInvalidArgument  the spec cannot be built; says why
absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec);

}  // namespace slackline::worker

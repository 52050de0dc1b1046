// Cuts a sequential model so that its stages take about equally long. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Layers [begin, end) of a model that is a chain of layers.
struct LayerRange {
  size_t begin = 0;
  size_t end = 0;
};

struct LayerPlan {
  double cost = 0;     // multiply-adds of the forward pass for one image
  size_t tensors = 0;  // number of tensors in the layout, which has the layers in order
};

// Returns the layers of a model. Requires: the kind has stages, and the model a layout.
std::vector<LayerPlan> LayersOf(const ModelSpec& spec);
// Returns the range of all layers; empty if the kind has no stages.
LayerRange WholeOf(const ModelSpec& spec);

// Cuts layers into `stages` runs, each of at least one layer, so that the cost of the most expensive run is minimal.
// Returns the first layer of each run, and then the number of layers. Requires: at least as many layers as stages, at
// least one stage.
std::vector<size_t> CutEvenly(const std::vector<double>& costs, size_t stages);

// Cuts the layers of a model.
//   kInvalidArgument  the model is no chain of layers, has fewer layers than stages, normalises batches or draws at
//                     random (parts of a batch would be another model), or has frozen tensors, which are stored
//                     separately
absl::StatusOr<std::vector<size_t>> CutModel(const ModelSpec& spec, size_t stages);

}  // namespace slackline::worker

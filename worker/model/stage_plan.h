// Where a sequential model is cut, so that the stages take about equally long. No LibTorch.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Layers [begin, end) of a model that is a chain of them.
struct LayerRange {
  size_t begin = 0;
  size_t end = 0;
};

struct LayerPlan {
  double cost = 0;     // multiply-adds of forward for one image
  size_t tensors = 0;  // of the layout, in whose order the layers are
};

// Of an mlp or cnn each convolution, with what follows it, and each fully connected layer; of a vision transformer the
// embedding, each block, and the norm with the head. Requires: the model is one of these, and has a layout.
std::vector<LayerPlan> LayersOf(const ModelSpec& spec);
LayerRange WholeOf(const ModelSpec& spec);

// Cuts layers into `stages` runs, each of one layer at least, so that the dearest run is as cheap as can be. Returns
// the layer at which each run begins, and the number of layers behind the last. Requires: at least as many layers as
// stages, at least one stage.
std::vector<size_t> CutEvenly(const std::vector<double>& costs, size_t stages);

// The same for the layers of a model.
//   kInvalidArgument  the model is no chain of layers, has fewer layers than stages, normalises batches or draws at
//                     random (parts of a batch would be another model), or has frozen tensors, which lie apart
absl::StatusOr<std::vector<size_t>> CutModel(const ModelSpec& spec, size_t stages);

}  // namespace slackline::worker

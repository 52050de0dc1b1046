// Where a sequential model is cut, so that the stages take about equally long. No LibTorch.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Multiply-adds that each layer of an mlp or cnn takes for one image.
std::vector<double> LayerCosts(const ModelSpec& spec);

// Cuts layers into `stages` runs, each of one layer at least, so that the dearest run is as cheap as can be. Returns
// the layer at which each run begins, and the number of layers behind the last. Requires: at least as many layers as
// stages, at least one stage.
std::vector<size_t> CutEvenly(const std::vector<double>& costs, size_t stages);

// The same for the layers of a model.
//   kInvalidArgument  the model is no chain of layers, has fewer layers than stages, or normalises batches, which in
//   parts
//                     of a batch would be another model
absl::StatusOr<std::vector<size_t>> CutModel(const ModelSpec& spec, size_t stages);

}  // namespace slackline::worker

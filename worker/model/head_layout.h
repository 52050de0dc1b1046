// Layout of the head that replaces the classifier in training without labels: a projection (Chen et al. 2020) and, for
// self-distillation, a predictor behind it (Grill et al. 2020). Each of them is
//
//   fully connected - batch normalisation - ReLU - fully connected
#pragma once

#include "worker/model/layout_builder.h"
#include "worker/model/model.h"

namespace slackline::worker {

inline constexpr char kProjection[] = "projection";
inline constexpr char kPrediction[] = "prediction";

// Adds the tensors under the names of torch.nn.Sequential: projection.0.*, projection.1.*, projection.3.*, and
// prediction.*.
void AddHead(const ModelSpec& spec, LayoutBuilder& builder);

// Returns whether a tensor belongs to such a head, by its name.
bool IsOfHead(const std::string& name);

}  // namespace slackline::worker

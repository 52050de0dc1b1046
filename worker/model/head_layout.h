// The head that takes the classifier's place where labels are not learned from: a projection (Chen et al. 2020), and a
// predictor behind it for self-distillation (Grill et al. 2020). Either is
//
//   fully connected - batch normalisation - ReLU - fully connected
#pragma once

#include "worker/model/layout_builder.h"
#include "worker/model/model.h"

namespace slackline::worker {

inline constexpr char kProjection[] = "projection";
inline constexpr char kPrediction[] = "prediction";

// Values that the network has of an image before its classifier. Requires: a kind other than kTorchScript.
uint64_t FeatureWidth(const ModelSpec& spec);

// Names are those of torch.nn.Sequential: projection.0.*, projection.1.*, projection.3.*, and prediction.*.
void AddHead(const ModelSpec& spec, LayoutBuilder& builder);

// Whether a tensor is of such a head, by its name.
bool IsOfHead(const std::string& name);

}  // namespace slackline::worker

// The table of families of models: one entry says which layers the models of a family have. Does not use LibTorch.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

struct Family {
  // Checks what the family needs, and adds its tensors.
  //   kInvalidArgument  the spec cannot be built; says why
  absl::Status (*add)(const ModelSpec& spec, LayoutBuilder& builder);
  // Returns the number of values per image before the classifier.
  uint64_t (*feature_width)(const ModelSpec& spec);
  // Returns the layers that stages can have. Null if the models are no chains of layers.
  std::vector<LayerPlan> (*layers)(const ModelSpec& spec);
};

// Returns the family of a kind. Requires: the kind is built in.
const Family& FamilyOf(ModelKind kind);

}  // namespace slackline::worker

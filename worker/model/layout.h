// Which tensors a network has, and where each lies in the flat vector. No LibTorch here: what a model is made of can
// be asked without building it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Invariant: tensors lie one behind the other in the order of `tensors`; trained ones first, frozen
// ones last.
struct Layout {
  std::vector<TensorInfo> tensors;
  uint64_t trained_elements = 0;
  uint64_t elements = 0;
};

// Names are those of a PyTorch module: see the layout of each family of networks.
//   kInvalidArgument  the spec cannot be built; says why
absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec);

// Whether the work of a step follows from its batch's images and labels alone, and is the same for all of a size.
//   kInvalidArgument  it is not; says why
absl::Status CheckRecordable(const ModelSpec& spec);

}  // namespace slackline::worker

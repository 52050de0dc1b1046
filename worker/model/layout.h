// Layout: the tensors of a network, and their places in the flat vector. Does not use LibTorch, so that a model's
// tensors can be listed without building the model.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Layout lists the tensors of a model.
//
// Invariant: tensors are adjacent, in the order of `tensors`: trained ones first, frozen ones last.
struct Layout {
  std::vector<TensorInfo> tensors;
  uint64_t trained_elements = 0;
  uint64_t elements = 0;
};

// Creates the layout. Tensors have the names of a PyTorch module: see the layout of each family of networks.
//   kInvalidArgument  the spec cannot be built; says why
absl::StatusOr<Layout> MakeLayout(const ModelSpec& spec);

// Checks that the work of a step depends only on the images and labels of its batch, and is the same for all batches of
// one size.
//   kInvalidArgument  it is not; says why
absl::Status CheckRecordable(const ModelSpec& spec);

}  // namespace slackline::worker

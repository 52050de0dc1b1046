// Weights to begin with, from a safetensors file: ours, or one that Python saved from torchvision's or timm's model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Copies the tensors of `bytes`, a safetensors file of F32, F16 or BF16 (tensors of other types are refused, but for
// batch normalisation's integer counters, which are passed over), to their places in `flat`. The last layer, the
// classifier, stays as it is where the file's has another number of classes, or where the file is of a run without
// labels (head_layout.h), whose head is passed over: the result names its tensors then. Whatever is wrong, `flat` is
// not changed.
//   kInvalidArgument  no safetensors; a tensor that is missing, unknown, of another shape or type, or not finite
// Requires: `tensors` describe `flat`.
absl::StatusOr<std::vector<std::string>> TakeWeights(absl::string_view bytes, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat);

// The same of the file at `path`; its messages begin with that.
//   kNotFound, kUnavailable  it cannot be read
absl::StatusOr<std::vector<std::string>> LoadWeights(const std::string& path, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat);

}  // namespace slackline::worker

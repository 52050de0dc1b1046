// Loads initial weights from a safetensors file: one of ours, or one that Python saved from a model of torchvision or
// timm.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Copies the tensors of `bytes`, a safetensors file of F32, F16 or BF16, to their places in `flat`. Integer counters of
// batch normalisation are skipped; tensors of any other type are an error. On any error, `flat` is not changed.
//
// The last layer, the classifier, keeps its values in two cases: the file's classifier has another number of classes,
// or the file is from a run without labels (head_layout.h), whose head is skipped. The result then names the
// classifier's tensors.
//
//   kInvalidArgument  not safetensors; a tensor that is missing, unknown, of another shape or type, or not finite
// Requires: `tensors` describe `flat`.
absl::StatusOr<std::vector<std::string>> TakeWeights(absl::string_view bytes, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat);

// Loads the file at `path` in the same way. Messages begin with the path.
//   kNotFound, kUnavailable  the file cannot be read
absl::StatusOr<std::vector<std::string>> LoadWeights(const std::string& path, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat);

}  // namespace slackline::worker

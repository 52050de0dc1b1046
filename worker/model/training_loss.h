// The loss that steps descend: cross-entropy, with class weights and label smoothing where they are wanted. LibTorch
// inside.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace slackline::worker {

//   kInvalidArgument  a label is not below `classes`, or mixed images have another number of other labels
absl::Status CheckTargets(const BatchView& batch, uint32_t classes);

// What a batch's outputs are to be, on the CPU: labels, n int64; of mixed images n x classes float32, what each class
// counts.
at::Tensor TargetsOf(const BatchView& batch, uint32_t classes);

// Outputs are n x classes, targets as TargetsOf() has them.
//
// Thread-safety: safe.
class TrainingLoss {
 public:
  TrainingLoss(const ModelSpec& spec, at::Device device);

  // That of torch.nn.functional.cross_entropy with reduction="sum".
  at::Tensor Sum(const at::Tensor& logits, const at::Tensor& targets) const;
  // Sum() over n. PyTorch's mean would divide by the sum of the weights, and parts of a batch would not add up.
  at::Tensor Mean(const at::Tensor& logits, const at::Tensor& targets) const;

 private:
  const double label_smoothing_;
  at::Tensor class_weights_;  // undefined: 1 for all
};

}  // namespace slackline::worker

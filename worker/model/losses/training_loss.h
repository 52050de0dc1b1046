// TrainingLoss: the loss that steps minimise, with optional class weights and label smoothing. Uses LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace slackline::worker {

// Checks the labels of a batch.
//   kInvalidArgument  a label is not below `classes`, or the number of other labels of mixed images differs
absl::Status CheckTargets(const BatchView& batch, uint32_t classes);

// Returns the targets of a batch's outputs, on the CPU: labels, n int64; for mixed images the weight of each class, n x
// classes float32.
at::Tensor TargetsOf(const BatchView& batch, uint32_t classes);

// TrainingLoss computes losses of outputs, n x classes, against targets that TargetsOf() returns.
//
// Thread-safety: safe.
class TrainingLoss {
 public:
  TrainingLoss(const ModelSpec& spec, at::Device device);

  // Returns the sum over the images. Cross-entropy is that of torch.nn.functional.cross_entropy with reduction="sum".
  // The other losses are mse_loss or binary_cross_entropy_with_logits, as a mean over the outputs of an image, times
  // the weight of its class (for mixed images the mean weight, by the targets). They compare with the labels' one-hot
  // vectors, or with the targets of mixed images; label smoothing s changes a target y to y (1 - s) + s / classes.
  at::Tensor Sum(const at::Tensor& logits, const at::Tensor& targets) const;
  // Returns Sum() / n. PyTorch's mean of cross-entropy would divide by the sum of the weights, and parts of a batch
  // would not add up.
  at::Tensor Mean(const at::Tensor& logits, const at::Tensor& targets) const;
  // Returns the mean without weights and smoothing, which evaluations measure.
  at::Tensor Plain(const at::Tensor& logits, const at::Tensor& targets) const;

 private:
  // Returns the loss of each image, n, against targets with `smoothing`.
  at::Tensor Each(const at::Tensor& logits, const at::Tensor& targets, double smoothing) const;

  const LossKind kind_;
  const double label_smoothing_;
  at::Tensor class_weights_;  // undefined: 1 for all classes
};

}  // namespace slackline::worker

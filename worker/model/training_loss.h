// The loss that steps descend, with class weights and label smoothing where they are wanted. LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace slackline::worker {

// Outputs are n x classes, labels n.
//
// Thread-safety: safe.
class TrainingLoss {
 public:
  TrainingLoss(const ModelSpec& spec, at::Device device);

  // Sum over the images. Of cross-entropy that of torch.nn.functional.cross_entropy with reduction="sum"; of the others
  // that of mse_loss or binary_cross_entropy_with_logits with the labels' one-hot vectors, y (1 - s) + s / classes with
  // label smoothing s, as a mean over the outputs of an image, times the weight of its class.
  at::Tensor Sum(const at::Tensor& logits, const at::Tensor& labels) const;
  // Sum() over n. PyTorch's mean of cross-entropy would divide by the sum of the weights, and parts of a batch would
  // not add up.
  at::Tensor Mean(const at::Tensor& logits, const at::Tensor& labels) const;
  // What evaluations measure: the mean without weights and smoothing.
  at::Tensor Plain(const at::Tensor& logits, const at::Tensor& labels) const;

 private:
  // n: of each image, against targets with so much smoothing.
  at::Tensor Each(const at::Tensor& logits, const at::Tensor& labels, double smoothing) const;

  const LossKind kind_;
  const double label_smoothing_;
  at::Tensor class_weights_;  // undefined: 1 for all
};

}  // namespace slackline::worker

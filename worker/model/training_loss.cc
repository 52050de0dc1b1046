#include "worker/model/training_loss.h"

#include <ATen/ATen.h>

#include <optional>

namespace slackline::worker {
namespace {

// PyTorch's default: no label has this value.
constexpr int64_t kIgnoredLabel = -100;

at::Tensor ClassWeights(const ModelSpec& spec, at::Device device) {
  if (spec.class_weights.empty()) return {};
  return at::tensor(at::ArrayRef<float>(spec.class_weights), at::kFloat).to(device);
}

}  // namespace

TrainingLoss::TrainingLoss(const ModelSpec& spec, at::Device device)
    : kind_(spec.loss), label_smoothing_(spec.label_smoothing), class_weights_(ClassWeights(spec, device)) {}

at::Tensor TrainingLoss::Each(const at::Tensor& logits, const at::Tensor& labels, double smoothing) const {
  const int64_t classes = logits.size(1);
  const at::Tensor hot = at::one_hot(labels, classes).to(logits.scalar_type());
  const at::Tensor targets = smoothing == 0 ? hot : hot * (1 - smoothing) + smoothing / static_cast<double>(classes);
  if (kind_ == LossKind::kMeanSquare) return at::mse_loss(logits, targets, at::Reduction::None).mean(1);
  return at::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None).mean(1);
}

at::Tensor TrainingLoss::Sum(const at::Tensor& logits, const at::Tensor& labels) const {
  if (kind_ == LossKind::kCrossEntropy) {
    return at::cross_entropy_loss(logits, labels, class_weights_, at::Reduction::Sum, kIgnoredLabel, label_smoothing_);
  }
  const at::Tensor each = Each(logits, labels, label_smoothing_);
  return class_weights_.defined() ? at::dot(each, class_weights_.index_select(0, labels)) : each.sum();
}

at::Tensor TrainingLoss::Mean(const at::Tensor& logits, const at::Tensor& labels) const {
  if (kind_ == LossKind::kCrossEntropy && !class_weights_.defined()) {
    return at::cross_entropy_loss(logits, labels, std::nullopt, at::Reduction::Mean, kIgnoredLabel, label_smoothing_);
  }
  return Sum(logits, labels) / static_cast<double>(labels.size(0));
}

at::Tensor TrainingLoss::Plain(const at::Tensor& logits, const at::Tensor& labels) const {
  if (kind_ == LossKind::kCrossEntropy || kind_ == LossKind::kModel) return at::cross_entropy_loss(logits, labels);
  return Each(logits, labels, 0).mean();
}

}  // namespace slackline::worker

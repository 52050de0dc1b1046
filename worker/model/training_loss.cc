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
    : label_smoothing_(spec.label_smoothing), class_weights_(ClassWeights(spec, device)) {}

at::Tensor TrainingLoss::Sum(const at::Tensor& logits, const at::Tensor& labels) const {
  return at::cross_entropy_loss(logits, labels, class_weights_, at::Reduction::Sum, kIgnoredLabel, label_smoothing_);
}

at::Tensor TrainingLoss::Mean(const at::Tensor& logits, const at::Tensor& labels) const {
  if (!class_weights_.defined()) {
    return at::cross_entropy_loss(logits, labels, std::nullopt, at::Reduction::Mean, kIgnoredLabel, label_smoothing_);
  }
  return Sum(logits, labels) / static_cast<double>(labels.size(0));
}

}  // namespace slackline::worker

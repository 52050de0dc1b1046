#include "worker/model/losses/training_loss.h"

#include <ATen/ATen.h>

#include <optional>

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

// PyTorch's default: no label has this value.
constexpr int64_t kIgnoredLabel = -100;

at::Tensor ClassWeights(const ModelSpec& spec, at::Device device) {
  if (spec.class_weights.empty()) return {};
  return at::tensor(at::ArrayRef<float>(spec.class_weights), at::kFloat).to(device);
}

// n x classes, from labels or as it is.
at::Tensor SharesOf(const at::Tensor& targets, int64_t classes) {
  return targets.dim() == 1 ? at::one_hot(targets, classes) : targets;
}

}  // namespace

absl::Status CheckTargets(const BatchView& batch, uint32_t classes) {
  if (!batch.other_labels.empty() && batch.other_labels.size() != batch.labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.labels.size(), " labels has ", batch.other_labels.size(), " other labels"));
  }
  for (const absl::Span<const int64_t> labels : {batch.labels, batch.other_labels}) {
    for (const int64_t label : labels) {
      if (label >= 0 && label < classes) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " is not below the model's ", classes, " classes"));
    }
  }
  return absl::OkStatus();
}

at::Tensor TargetsOf(const BatchView& batch, uint32_t classes) {
  const auto count = static_cast<int64_t>(batch.labels.size());
  if (batch.other_labels.empty()) {
    return at::from_blob(const_cast<int64_t*>(batch.labels.data()), {count}, at::kLong);
  }
  at::Tensor targets = at::zeros({count, classes}, at::kFloat);
  auto* row = targets.mutable_data_ptr<float>();
  for (size_t i = 0; i < batch.labels.size(); ++i, row += classes) {
    row[batch.labels[i]] += batch.share;
    row[batch.other_labels[i]] += 1 - batch.share;
  }
  return targets;
}

TrainingLoss::TrainingLoss(const ModelSpec& spec, at::Device device)
    : kind_(spec.loss), label_smoothing_(spec.label_smoothing), class_weights_(ClassWeights(spec, device)) {}

at::Tensor TrainingLoss::Each(const at::Tensor& logits, const at::Tensor& targets, double smoothing) const {
  const int64_t classes = logits.size(1);
  const at::Tensor shares = SharesOf(targets, classes).to(logits.scalar_type());
  const at::Tensor wanted =
      smoothing == 0 ? shares : shares * (1 - smoothing) + smoothing / static_cast<double>(classes);
  if (kind_ == LossKind::kMeanSquare) return at::mse_loss(logits, wanted, at::Reduction::None).mean(1);
  return at::binary_cross_entropy_with_logits(logits, wanted, {}, {}, at::Reduction::None).mean(1);
}

at::Tensor TrainingLoss::Sum(const at::Tensor& logits, const at::Tensor& targets) const {
  if (kind_ == LossKind::kCrossEntropy) {
    return at::cross_entropy_loss(logits, targets, class_weights_, at::Reduction::Sum, kIgnoredLabel, label_smoothing_);
  }
  const at::Tensor each = Each(logits, targets, label_smoothing_);
  if (!class_weights_.defined()) return each.sum();
  return at::dot(each, at::mv(SharesOf(targets, logits.size(1)).to(each.scalar_type()), class_weights_));
}

at::Tensor TrainingLoss::Mean(const at::Tensor& logits, const at::Tensor& targets) const {
  if (kind_ == LossKind::kCrossEntropy && !class_weights_.defined()) {
    return at::cross_entropy_loss(logits, targets, std::nullopt, at::Reduction::Mean, kIgnoredLabel, label_smoothing_);
  }
  return Sum(logits, targets) / static_cast<double>(targets.size(0));
}

at::Tensor TrainingLoss::Plain(const at::Tensor& logits, const at::Tensor& targets) const {
  if (kind_ == LossKind::kCrossEntropy || kind_ == LossKind::kModel) return at::cross_entropy_loss(logits, targets);
  return Each(logits, targets, 0).mean();
}

}  // namespace slackline::worker

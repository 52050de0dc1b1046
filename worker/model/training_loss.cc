#include "worker/model/training_loss.h"

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
    : label_smoothing_(spec.label_smoothing), class_weights_(ClassWeights(spec, device)) {}

at::Tensor TrainingLoss::Sum(const at::Tensor& logits, const at::Tensor& targets) const {
  return at::cross_entropy_loss(logits, targets, class_weights_, at::Reduction::Sum, kIgnoredLabel, label_smoothing_);
}

at::Tensor TrainingLoss::Mean(const at::Tensor& logits, const at::Tensor& targets) const {
  if (!class_weights_.defined()) {
    return at::cross_entropy_loss(logits, targets, std::nullopt, at::Reduction::Mean, kIgnoredLabel, label_smoothing_);
  }
  return Sum(logits, targets) / static_cast<double>(targets.size(0));
}

}  // namespace slackline::worker

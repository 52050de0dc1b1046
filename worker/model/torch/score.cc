#include "worker/model/torch/score.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace slackline::worker {

StepResult ScoreOf(const at::Tensor& outputs, const at::Tensor& loss, const BatchView& batch,
                   absl::Span<int64_t> predictions) {
  const at::Tensor rows = outputs.to(at::kCPU).contiguous();
  const int64_t classes = rows.size(1);
  const float* row = rows.const_data_ptr<float>();
  StepResult result{.samples = batch.labels.size(), .loss = loss.item<float>(), .correct = 0};
  for (size_t i = 0; i < batch.labels.size(); ++i, row += classes) {
    const int64_t predicted = std::max_element(row, row + classes) - row;
    if (predicted == batch.labels[i]) ++result.correct;
    if (predictions.empty()) continue;
    predictions[i] = predicted;
    if (classes < kTop5Classes) continue;
    // As argmax has it, the first of equal outputs is the larger one.
    const float own = row[batch.labels[i]];
    const auto better = std::count_if(row, row + classes, [own](float output) { return !(output <= own); }) +
                        std::count(row, row + batch.labels[i], own);
    if (better < 5) ++result.correct_top5;
  }
  return result;
}

}  // namespace slackline::worker

#include "worker/model/losses/view_loss.h"

#include <ATen/ATen.h>

#include <limits>

namespace slackline::worker {
namespace {

constexpr double kLengthMin = 1e-12;

}  // namespace

at::Tensor OfLengthOne(const at::Tensor& rows) {
  return rows / rows.norm(2, at::IntArrayRef{1}, /*keepdim=*/true).clamp_min(kLengthMin);
}

at::Tensor ContrastiveLoss(const at::Tensor& projections, int64_t views, double temperature) {
  const at::Tensor rows = OfLengthOne(projections);
  const int64_t count = rows.size(0), images = count / views;
  const at::Tensor self = at::eye(count, rows.options().dtype(at::kBool));
  const at::Tensor logits =
      rows.mm(rows.t()).div(temperature).masked_fill(self, -std::numeric_limits<double>::infinity());
  const at::Tensor likely = at::log_softmax(logits, 1);
  // The other views of an image lie a whole number of views away.
  at::Tensor sum = at::zeros({}, rows.options());
  for (int64_t away = images; away < count; away += images) {
    sum = sum + likely.diagonal(away).sum() + likely.diagonal(-away).sum();
  }
  return -sum / static_cast<double>(count * (views - 1));
}

at::Tensor DistillationLoss(const at::Tensor& predictions, const at::Tensor& targets, int64_t views) {
  const at::Tensor rows = OfLengthOne(predictions), wanted = OfLengthOne(targets);
  const int64_t count = rows.size(0), images = count / views;
  at::Tensor sum = at::zeros({}, rows.options());
  for (int64_t away = images; away < count; away += images) sum = sum + (rows * wanted.roll(away, 0)).sum();
  return 4 - sum * (4.0 / static_cast<double>(count * (views - 1)));
}

}  // namespace slackline::worker

#include "worker/model/networks/neighbours.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/model/losses/view_loss.h"

namespace slackline::worker {
namespace {

// So many rows are compared with all that is remembered at a time: 40 MB of cosines with 100,000.
constexpr int64_t kRowsAtOnce = 100;

}  // namespace

Neighbours::Neighbours(const ModelSpec& spec)
    : classes_(spec.classes),
      count_(spec.self_supervised.neighbours),
      temperature_(spec.self_supervised.neighbour_temperature) {}

void Neighbours::Forget() {
  features_.clear();
  labels_.clear();
}

void Neighbours::Remember(const at::Tensor& features, const at::Tensor& labels) {
  features_.push_back(OfLengthOne(features));
  labels_.push_back(labels.clone());
}

at::Tensor Neighbours::Votes(const at::Tensor& features) {
  if (features_.size() > 1) {
    features_ = {at::cat(features_)};
    labels_ = {at::cat(labels_)};
  }
  const at::Tensor& known = features_.front();
  const int64_t count = std::min(count_, known.size(0));
  std::vector<at::Tensor> parts;
  for (const at::Tensor& rows : OfLengthOne(features).split(kRowsAtOnce)) {
    const auto [cosines, places] = rows.mm(known.t()).topk(count, 1);
    // The nearest one counts 1, so that nothing overflows; shares are the same.
    const at::Tensor weights = ((cosines - cosines.narrow(1, 0, 1)) / temperature_).exp();
    const at::Tensor votes = at::zeros({rows.size(0), classes_}, rows.options());
    parts.push_back(votes.scatter_add(1, labels_.front().take(places), weights) /
                    weights.sum(at::IntArrayRef{1}, /*keepdim=*/true));
  }
  return at::cat(parts);
}

}  // namespace slackline::worker

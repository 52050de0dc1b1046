// Neighbours: classification by nearest neighbours (Wu et al. 2018), for features without a classifier. Uses LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/model/model.h"

namespace slackline::worker {

// Neighbours remembers images by their features.
//
// Thread-safety: none.
class Neighbours {
 public:
  explicit Neighbours(const ModelSpec& spec);

  void Forget();
  // Adds images. Features are n x width, labels n.
  void Remember(const at::Tensor& features, const at::Tensor& labels);
  bool empty() const { return features_.empty(); }
  // Returns the votes of the nearest remembered images by cosine, n x classes. Each image votes for its label with
  // exp(cosine / temperature); votes are shares of all votes.
  // Requires: !empty().
  at::Tensor Votes(const at::Tensor& features);

 private:
  const int64_t classes_;
  const int64_t count_;
  const double temperature_;
  // Features of length one. Both vectors hold one tensor once there were votes.
  std::vector<at::Tensor> features_;
  std::vector<at::Tensor> labels_;
};

}  // namespace slackline::worker

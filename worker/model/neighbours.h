// Classification by nearest neighbours (Wu et al. 2018), for features without a classifier. LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/model/model.h"

namespace slackline::worker {

// Images that are remembered by what a network makes of them.
//
// Thread-safety: none.
class Neighbours {
 public:
  explicit Neighbours(const ModelSpec& spec);

  void Forget();
  // Features are n x width, labels n.
  void Remember(const at::Tensor& features, const at::Tensor& labels);
  bool empty() const { return features_.empty(); }
  // n x classes: of the nearest by cosine, exp(cosine / temperature) for the label of each, in shares of all votes.
  // Requires: !empty().
  at::Tensor Votes(const at::Tensor& features);

 private:
  const int64_t classes_;
  const int64_t count_;
  const double temperature_;
  // Of length one; one tensor once there were votes.
  std::vector<at::Tensor> features_;
  std::vector<at::Tensor> labels_;
};

}  // namespace slackline::worker

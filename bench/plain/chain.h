// The models mlp and cnn, written with torch::nn.
#pragma once

#include "bench/plain/networks.h"

namespace slackline::bench {

// The cnn, or the mlp if `convolutions` is false.
class PlainChain final : public PlainNetwork {
 public:
  PlainChain(bool convolutions, Order order);
  torch::Tensor forward(torch::Tensor x) override;

 private:
  torch::Tensor Pool(const torch::Tensor& x) const;

  const bool tuned_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

}  // namespace slackline::bench

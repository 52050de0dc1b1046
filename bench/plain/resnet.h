// ResNet-18, written with torch::nn after torchvision's version.
#pragma once

#include "bench/plain/networks.h"

namespace slackline::bench {

class PlainResnet final : public PlainNetwork {
 public:
  explicit PlainResnet(Order order);
  torch::Tensor forward(torch::Tensor x) override;

 private:
  const Order order_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::Sequential blocks_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace slackline::bench

// The networks of worker/model as a user of LibTorch would write them with torch::nn: what the worker is raced against.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

namespace slackline::bench {

// The memory order and the order of operations. Textbook is ReLU before pooling on the default memory order; tuned has
// every choice of kernels that the worker's model makes.
enum class Order { kTextbook, kTuned };

class PlainNetwork : public torch::nn::Module {
 public:
  // Images n x 1 x 28 x 28.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

// With the widths of the default job file, for 10 classes. Requires: `model` is mlp, cnn or resnet18.
std::shared_ptr<PlainNetwork> MakePlainNetwork(const std::string& model, Order order);

}  // namespace slackline::bench

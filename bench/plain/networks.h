// The networks of worker/model, written as a LibTorch user would with torch::nn. The worker is compared with them.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

namespace slackline::bench {

// Memory order and order of operations. kTextbook applies ReLU before pooling, in the default memory order. kTuned
// makes the same kernel choices as the worker's model.
enum class Order { kTextbook, kTuned };

class PlainNetwork : public torch::nn::Module {
 public:
  // Runs the network on images of shape n x 1 x 28 x 28.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

// Creates a network with the widths of the default job file, for 10 classes. Requires: `model` is mlp, cnn or resnet18.
std::shared_ptr<PlainNetwork> MakePlainNetwork(const std::string& model, Order order);

}  // namespace slackline::bench

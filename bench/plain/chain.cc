#include "bench/plain/chain.h"

namespace slackline::bench {

PlainChain::PlainChain(bool convolutions, Order order) : tuned_(order == Order::kTuned) {
  if (convolutions) {
    conv1_ = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3).padding(1)));
    conv2_ = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).padding(1)));
  }
  const int64_t inputs = convolutions ? 64 * 7 * 7 : 28 * 28, hidden = convolutions ? 128 : 192;
  fc1_ = register_module("fc1", torch::nn::Linear(inputs, hidden));
  fc2_ = register_module("fc2", torch::nn::Linear(hidden, 10));
}

torch::Tensor PlainChain::forward(torch::Tensor x) {
  if (conv1_) x = Pool(conv2_->forward(Pool(conv1_->forward(x))));
  x = fc1_->forward(x.flatten(1));
  return fc2_->forward(tuned_ ? x.relu_() : x.relu());
}

torch::Tensor PlainChain::Pool(const torch::Tensor& x) const {
  return tuned_ ? torch::max_pool2d(x, 2).relu_() : torch::max_pool2d(torch::relu(x), 2);
}

}  // namespace slackline::bench

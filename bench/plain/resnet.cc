#include "bench/plain/resnet.h"

namespace slackline::bench {
namespace {

namespace nn = torch::nn;

struct BlockShape {
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t stride = 1;
};

nn::Conv2d Conv(const BlockShape& shape, int64_t window) {
  return nn::Conv2d(
      nn::Conv2dOptions(shape.inputs, shape.outputs, window).stride(shape.stride).padding(window / 2).bias(false));
}

class BlockImpl : public nn::Module {
 public:
  BlockImpl(const BlockShape& shape, Order order) : tuned_(order == Order::kTuned) {
    const BlockShape same{.inputs = shape.outputs, .outputs = shape.outputs, .stride = 1};
    conv1_ = register_module("conv1", Conv(shape, 3));
    bn1_ = register_module("bn1", nn::BatchNorm2d(shape.outputs));
    conv2_ = register_module("conv2", Conv(same, 3));
    bn2_ = register_module("bn2", nn::BatchNorm2d(shape.outputs));
    if (shape.stride == 1 && shape.inputs == shape.outputs) return;
    downsample_ = register_module("downsample", nn::Sequential(Conv(shape, 1), nn::BatchNorm2d(shape.outputs)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor inner = Relu(bn1_->forward(conv1_->forward(x)));
    const torch::Tensor shortcut = downsample_ ? downsample_->forward(x) : x;
    const torch::Tensor outer = bn2_->forward(conv2_->forward(inner));
    return Relu(tuned_ ? outer.add_(shortcut) : outer + shortcut);
  }

 private:
  torch::Tensor Relu(const torch::Tensor& x) const { return tuned_ ? x.relu_() : x.relu(); }

  const bool tuned_;
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Block);

}  // namespace

PlainResnet::PlainResnet(Order order) : order_(order) {
  conv1_ = register_module("conv1", Conv({.inputs = 1, .outputs = 64, .stride = 2}, 7));
  bn1_ = register_module("bn1", nn::BatchNorm2d(64));
  BlockShape shape{.inputs = 64, .outputs = 64, .stride = 1};
  for (const int64_t channels : {64, 128, 256, 512}) {
    shape.outputs = channels;
    shape.stride = channels == 64 ? 1 : 2;
    blocks_->push_back(Block(shape, order));
    blocks_->push_back(Block(BlockShape{.inputs = channels, .outputs = channels, .stride = 1}, order));
    shape.inputs = channels;
  }
  register_module("blocks", blocks_);
  fc_ = register_module("fc", nn::Linear(512, 10));
  for (const auto& module : modules(/*include_self=*/false)) {
    auto* const conv = module->as<nn::Conv2d>();
    if (conv != nullptr) nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  }
}

torch::Tensor PlainResnet::forward(torch::Tensor x) {
  x = bn1_->forward(conv1_->forward(x));
  x = order_ == Order::kTuned ? torch::max_pool2d(x, 3, 2, 1).relu_() : torch::max_pool2d(x.relu(), 3, 2, 1);
  return fc_->forward(blocks_->forward(x).mean({2, 3}));
}

}  // namespace slackline::bench

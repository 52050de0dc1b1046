#include "worker/model/networks/resnet_network.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "worker/model/resnet_layout.h"

namespace slackline::worker {
namespace {

struct Names {
  std::string convolution;
  std::string norm;
};

NormedConvolution Normed(const FlatTensors& tensors, const Names& names, uint64_t stride) {
  return {.convolution = Convolution(tensors, names.convolution, Convolution::Bias::kNone, stride),
          .norm = BatchNorm(tensors, names.norm)};
}

ResidualBlock MakeBlock(const FlatTensors& tensors, const ResnetBlock& shape) {
  ResidualBlock block;
  for (size_t i = 0; i < shape.path.size(); ++i) {
    const Names names = {.convolution = absl::StrCat(shape.name, ".conv", i + 1),
                         .norm = absl::StrCat(shape.name, ".bn", i + 1)};
    block.path.push_back(Normed(tensors, names, shape.path[i].stride));
  }
  if (shape.downsamples()) {
    block.downsample = Normed(tensors, {shape.name + ".downsample.0", shape.name + ".downsample.1"}, shape.stride);
  }
  return block;
}

}  // namespace

at::Tensor ResidualBlock::operator()(const at::Tensor& images, Mode mode) const {
  at::Tensor inner = images;
  for (size_t i = 0; i + 1 < path.size(); ++i) inner = path[i](inner, mode).relu_();
  const at::Tensor shortcut = downsample ? (*downsample)(images, mode) : images;
  return path.back()(inner, mode).add_(shortcut).relu_();
}

ResnetNetwork::ResnetNetwork(const ModelSpec& spec, const FlatTensors& tensors)
    : stem_(Normed(tensors, {"conv1", "bn1"}, kStemStride)), classifier_(tensors, "fc") {
  for (const ResnetBlock& block : ResnetBlocks(spec.kind)) blocks_.push_back(MakeBlock(tensors, block));
}

// torchvision makes all layers first, each with PyTorch's default draws and a downsample before its block, and then
// draws the convolutions again. The first draws count only in that they move the generator.
void ResnetNetwork::Initialise(at::Generator& generator) {
  std::vector<NormedConvolution*> made = {&stem_}, drawn = {&stem_};
  for (ResidualBlock& block : blocks_) {
    if (block.downsample) made.push_back(&*block.downsample);
    for (std::vector<NormedConvolution*>* order : {&made, &drawn}) {
      for (NormedConvolution& layer : block.path) order->push_back(&layer);
    }
    if (block.downsample) drawn.push_back(&*block.downsample);
  }
  for (NormedConvolution* layer : made) layer->convolution.FillUniform(generator);
  if (classifier_.there()) classifier_.layer().FillUniform(generator);
  for (NormedConvolution* layer : drawn) {
    layer->convolution.FillKaimingNormal(generator);
    layer->norm.Fill();
  }
}

at::Tensor ResnetNetwork::Forward(const at::Tensor& images, Mode mode, Noise& /*noise*/) const {
  // ReLU never changes which value of a window is largest, so it may follow the pooling, where it is a quarter of work.
  at::Tensor x = at::max_pool2d(stem_(images, mode), kStemPooling, kStemStride, kStemPooling / 2).relu_();
  for (const ResidualBlock& block : blocks_) x = block(x, mode);
  return classifier_(x.mean({2, 3}));
}

}  // namespace slackline::worker

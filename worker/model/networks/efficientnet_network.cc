#include "worker/model/networks/efficientnet_network.h"

#include <ATen/ATen.h>

#include <string>

#include "worker/model/efficientnet_layout.h"

namespace slackline::worker {
namespace {

NormedConvolution MakeNormed(const FlatTensors& tensors, const std::string& name, uint64_t stride = 1) {
  return {.convolution = Convolution(tensors, name + ".0", Convolution::Bias::kNone, stride),
          .norm = BatchNorm(tensors, name + ".1")};
}

MobileLayers MakeMobileLayers(const FlatTensors& tensors, const MobileBlock& block, double stochastic_depth) {
  MobileLayers layers;
  if (block.expands()) layers.expand = MakeNormed(tensors, block.expand());
  layers.depthwise = MakeNormed(tensors, block.depthwise(), block.stride);
  layers.depthwise.convolution.MakeDepthwise();
  layers.squeeze = Convolution(tensors, block.squeeze() + ".fc1", Convolution::Bias::kTrained);
  layers.excite = Convolution(tensors, block.squeeze() + ".fc2", Convolution::Bias::kTrained);
  layers.project = MakeNormed(tensors, block.project());
  layers.adds_input = block.adds_input();
  layers.stochastic_depth = stochastic_depth * block.depth;
  return layers;
}

}  // namespace

at::Tensor MobileLayers::operator()(const at::Tensor& images, Mode mode, Noise& noise) const {
  at::Tensor x = expand ? at::silu((*expand)(images, mode)) : images;
  x = at::silu(depthwise(x, mode));
  const at::Tensor squeezed = at::silu(squeeze(x.mean({2, 3}, /*keepdim=*/true)));
  x = project(x * at::sigmoid(excite(squeezed)), mode);
  return adds_input ? noise.DropImages(x, stochastic_depth) + images : x;
}

EfficientnetNetwork::EfficientnetNetwork(const ModelSpec& spec, const FlatTensors& tensors)
    : dropout_(spec.dropout),
      stem_(MakeNormed(tensors, kEfficientnetStem, kEfficientnetStemStride)),
      head_(MakeNormed(tensors, kEfficientnetHead)),
      classifier_(tensors, kEfficientnetClassifier) {
  for (const MobileBlock& block : EfficientnetBlocks()) {
    blocks_.push_back(MakeMobileLayers(tensors, block, spec.stochastic_depth));
  }
}

// torchvision makes all layers first, each with PyTorch's default draws, and then draws all of them again. The first
// draws count only in that they move the generator.
void EfficientnetNetwork::Initialise(at::Generator& generator) {
  std::vector<Convolution*> convolutions = {&stem_.convolution};
  std::vector<BatchNorm*> norms = {&stem_.norm, &head_.norm};
  for (MobileLayers& block : blocks_) {
    if (block.expand) {
      convolutions.push_back(&block.expand->convolution);
      norms.push_back(&block.expand->norm);
    }
    for (Convolution* layer :
         {&block.depthwise.convolution, &block.squeeze, &block.excite, &block.project.convolution}) {
      convolutions.push_back(layer);
    }
    norms.push_back(&block.depthwise.norm);
    norms.push_back(&block.project.norm);
  }
  convolutions.push_back(&head_.convolution);
  for (Convolution* layer : convolutions) layer->FillUniform(generator);
  if (classifier_.there()) classifier_.layer().FillUniform(generator);
  for (Convolution* layer : convolutions) layer->FillKaimingNormal(generator);
  if (classifier_.there()) classifier_.layer().FillUniformByOutputs(generator);
  for (BatchNorm* norm : norms) norm->Fill();
}

at::Tensor EfficientnetNetwork::Forward(const at::Tensor& images, Mode mode, Noise& noise) const {
  at::Tensor x = at::silu(stem_(images, mode));
  for (const MobileLayers& block : blocks_) x = block(x, mode, noise);
  x = at::silu(head_(x, mode)).mean({2, 3});
  return classifier_.there() ? classifier_(noise.Dropout(x, dropout_)) : x;
}

}  // namespace slackline::worker

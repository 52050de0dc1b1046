#include "worker/model/chain_network.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"

namespace slackline::worker {

ChainNetwork::ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors) {
  const ChainShape shape = ShapeOfChain(spec);
  for (size_t i = 1; i <= shape.convolutions.size(); ++i) {
    convolutions_.emplace_back(tensors, absl::StrCat("conv", i), Convolution::Bias::kTrained);
    if (spec.batch_norm) norms_.emplace_back(tensors, absl::StrCat("bn", i));
  }
  for (size_t i = 1; i <= shape.linears.size(); ++i) linears_.emplace_back(tensors, absl::StrCat("fc", i));
}

void ChainNetwork::Initialise(at::Generator& generator) {
  for (Convolution& layer : convolutions_) layer.FillUniform(generator);
  for (Linear& layer : linears_) layer.FillUniform(generator);
  for (BatchNorm& norm : norms_) norm.Fill();
}

at::Tensor ChainNetwork::Forward(const at::Tensor& images, Mode mode) const {
  at::Tensor x = images;
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    x = convolutions_[i](x);
    if (!norms_.empty()) x = norms_[i](x, mode);
    // ReLU never changes which of four values is largest, so it may follow the pooling, where it is a quarter of work.
    x = at::max_pool2d(x, kChainPooling).relu_();
  }
  x = x.flatten(1);
  for (size_t i = 0; i < linears_.size(); ++i) {
    x = linears_[i](x);
    if (i + 1 < linears_.size()) x.relu_();
  }
  return x;
}

}  // namespace slackline::worker

#include "worker/model/networks/chain_network.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"

namespace slackline::worker {

ChainNetwork::ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range) {
  const ChainShape shape = ShapeOfChain(spec);
  const size_t convolutions = shape.convolutions.size(), layers = convolutions + shape.linears.size();
  for (size_t i = range.begin; i < std::min(range.end, convolutions); ++i) {
    convolutions_.emplace_back(tensors, absl::StrCat("conv", i + 1), Convolution::Bias::kTrained);
    if (spec.batch_norm) norms_.emplace_back(tensors, absl::StrCat("bn", i + 1));
  }
  for (size_t i = std::max(range.begin, convolutions); i < range.end; ++i) {
    linears_.emplace_back(tensors, absl::StrCat("fc", i - convolutions + 1));
  }
  flattens_ = range.begin <= convolutions;
  classifies_ = range.end == layers && !spec.self_supervised.on();
}

void ChainNetwork::Initialise(at::Generator& generator) {
  for (Convolution& layer : convolutions_) layer.FillUniform(generator);
  for (Linear& layer : linears_) layer.FillUniform(generator);
  for (BatchNorm& norm : norms_) norm.Fill();
}

at::Tensor ChainNetwork::Forward(const at::Tensor& images, Mode mode, Noise& /*noise*/) const {
  at::Tensor x = images;
  for (size_t i = 0; i < convolutions_.size(); ++i) x = ForwardConvolution(x, i, mode);
  for (size_t i = 0; i < linears_.size(); ++i) x = ForwardLinear(x, i);
  return x;
}

at::Tensor ChainNetwork::ForwardConvolution(const at::Tensor& images, size_t index, Mode mode) const {
  at::Tensor x = convolutions_[index](images);
  if (!norms_.empty()) x = norms_[index](x, mode);
  // ReLU never changes which of four values is largest, so it may follow the pooling, where it is a quarter of work.
  return at::max_pool2d(x, kChainPooling).relu_();
}

at::Tensor ChainNetwork::ForwardLinear(const at::Tensor& rows, size_t index) const {
  at::Tensor x = linears_[index](flattens_ && index == 0 ? rows.flatten(1) : rows);
  if (!classifies_ || index + 1 < linears_.size()) x.relu_();
  return x;
}

}  // namespace slackline::worker

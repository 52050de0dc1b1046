#include "worker/model/chain_network.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"

namespace slackline::worker {

ChainNetwork::ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors)
    : classifies_(!spec.self_supervised.on()) {
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

at::Tensor ChainNetwork::ForwardLayers(const at::Tensor& input, const Layers& range, Mode mode) const {
  at::Tensor x = input;
  for (size_t i = range.begin; i < range.end; ++i) {
    x = i < convolutions_.size() ? ForwardConvolution(x, i, mode) : ForwardLinear(x, i - convolutions_.size());
  }
  return x;
}

std::vector<std::string> ChainNetwork::TensorsOf(const Layers& range) const {
  std::vector<std::string> names;
  for (size_t i = range.begin; i < range.end; ++i) {
    const size_t convolutions = convolutions_.size();
    const std::string layer = i < convolutions ? absl::StrCat("conv", i + 1) : absl::StrCat("fc", i - convolutions + 1);
    names.push_back(absl::StrCat(layer, ".weight"));
    names.push_back(absl::StrCat(layer, ".bias"));
  }
  return names;
}

at::Tensor ChainNetwork::ForwardConvolution(const at::Tensor& images, size_t index, Mode mode) const {
  at::Tensor x = convolutions_[index](images);
  if (!norms_.empty()) x = norms_[index](x, mode);
  // ReLU never changes which of four values is largest, so it may follow the pooling, where it is a quarter of work.
  return at::max_pool2d(x, kChainPooling).relu_();
}

at::Tensor ChainNetwork::ForwardLinear(const at::Tensor& rows, size_t index) const {
  at::Tensor x = linears_[index](index == 0 ? rows.flatten(1) : rows);
  if (!classifies_ || index + 1 < linears_.size()) x.relu_();
  return x;
}

}  // namespace slackline::worker

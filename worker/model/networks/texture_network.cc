#include "worker/model/networks/texture_network.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "worker/model/texture_layout.h"

namespace slackline::worker {

TextureNetwork::TextureNetwork(const ModelSpec& spec, const FlatTensors& tensors)
    : dropout_(spec.dropout),
      classifies_(!spec.self_supervised.on()),
      first_(tensors, "conv1", Convolution::Bias::kTrained, kTextureStride1),
      second_(tensors, "conv2", Convolution::Bias::kTrained) {
  first_.set_padding(kTexturePadding1);
  const size_t layers = TextureLinears(spec).size();
  for (size_t i = 1; i <= layers; ++i) linears_.emplace_back(tensors, absl::StrCat("fc", i));
}

void TextureNetwork::Initialise(at::Generator& generator) {
  first_.FillUniform(generator);
  second_.FillUniform(generator);
  for (Linear& layer : linears_) layer.FillUniform(generator);
}

at::Tensor TextureNetwork::Forward(const at::Tensor& images, Mode /*mode*/, Noise& noise) const {
  // ReLU never changes which value of a window is largest, so it may follow the pooling, where it is a quarter of work.
  at::Tensor x = at::max_pool2d(first_(images), kTexturePooling, kTexturePoolingStride).relu_();
  x = linears_.front()(second_(x).relu_().mean({2, 3}));
  for (size_t i = 1; i < linears_.size(); ++i) x = linears_[i](noise.Dropout(x.relu_(), dropout_));
  return classifies_ ? x : x.relu_();
}

}  // namespace slackline::worker

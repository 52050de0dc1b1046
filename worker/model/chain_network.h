// The forward pass of the mlp and the cnn; see chain_layout.h.
#pragma once

#include <string>
#include <vector>

#include "worker/model/network.h"

namespace slackline::worker {

class ChainNetwork final : public Network {
 public:
  // Borrows `tensors`.
  ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& /*noise*/) const override {
    return ForwardLayers(images, {.begin = 0, .end = layers()}, mode);
  }

  // Convolutions, with what follows them, and then fully connected layers.
  size_t layers() const { return convolutions_.size() + linears_.size(); }
  struct Layers {
    size_t begin = 0;
    size_t end = 0;
  };
  // Without those of batch_norm.
  std::vector<std::string> TensorsOf(const Layers& range) const;
  at::Tensor ForwardLayers(const at::Tensor& input, const Layers& range, Mode mode) const;

 private:
  at::Tensor ForwardConvolution(const at::Tensor& images, size_t index, Mode mode) const;
  at::Tensor ForwardLinear(const at::Tensor& rows, size_t index) const;

  const bool classifies_;  // the last layer does
  std::vector<Convolution> convolutions_;
  std::vector<BatchNorm> norms_;  // one a convolution, or none
  std::vector<Linear> linears_;
};

}  // namespace slackline::worker

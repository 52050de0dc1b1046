// The forward pass of the mlp and the cnn; see chain_layout.h.
#pragma once

#include <vector>

#include "worker/model/network.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

class ChainNetwork final : public Network {
 public:
  // Borrows `tensors`, which have those of `range` at least.
  ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  // Of those that are here.
  at::Tensor ForwardConvolution(const at::Tensor& images, size_t index, Mode mode) const;
  at::Tensor ForwardLinear(const at::Tensor& rows, size_t index) const;

  // Convolutions, with what follows them, and then fully connected layers; `range` of them.
  std::vector<Convolution> convolutions_;
  std::vector<BatchNorm> norms_;  // one a convolution, or none
  std::vector<Linear> linears_;
  bool flattens_ = false;    // the first of linears_ is the model's first
  bool classifies_ = false;  // the last of linears_ does
};

}  // namespace slackline::worker

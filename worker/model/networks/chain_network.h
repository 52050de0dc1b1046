// The forward pass of the mlp and the cnn; see chain_layout.h.
#pragma once

#include <vector>

#include "worker/model/networks/network.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

class ChainNetwork final : public Network {
 public:
  // Borrows `tensors`, which contain at least those of `range`.
  ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  // `index`: among the layers of this part.
  at::Tensor ForwardConvolution(const at::Tensor& images, size_t index, Mode mode) const;
  at::Tensor ForwardLinear(const at::Tensor& rows, size_t index) const;

  // Layers of `range`: convolutions, with the layers that follow each, and then fully connected layers.
  std::vector<Convolution> convolutions_;
  std::vector<BatchNorm> norms_;  // one per convolution, or empty
  std::vector<Linear> linears_;
  bool flattens_ = false;    // true if the first of linears_ is the model's first
  bool classifies_ = false;  // true if the last of linears_ is the classifier
};

}  // namespace slackline::worker

// The forward pass of the mlp and the cnn; see chain_layout.h.
#pragma once

#include <vector>

#include "worker/model/network.h"

namespace slackline::worker {

class ChainNetwork final : public Network {
 public:
  // Borrows `tensors`.
  ChainNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode) const override;

 private:
  std::vector<Convolution> convolutions_;
  std::vector<BatchNorm> norms_;  // one a convolution, or none
  std::vector<Linear> linears_;
};

}  // namespace slackline::worker

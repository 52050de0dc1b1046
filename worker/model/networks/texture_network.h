// The forward pass of T-CNN-2; see texture_layout.h.
#pragma once

#include <vector>

#include "worker/model/networks/network.h"

namespace slackline::worker {

class TextureNetwork final : public Network {
 public:
  // Borrows `tensors`.
  TextureNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  const double dropout_;
  const bool classifies_;  // true if the last layer is the classifier
  Convolution first_;
  Convolution second_;
  std::vector<Linear> linears_;
};

}  // namespace slackline::worker

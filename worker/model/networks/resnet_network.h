// The forward pass of residual networks; see resnet_layout.h.
#pragma once

#include <optional>
#include <vector>

#include "worker/model/networks/network.h"

namespace slackline::worker {

struct ResidualBlock {
  std::vector<NormedConvolution> path;
  std::optional<NormedConvolution> downsample;

  at::Tensor operator()(const at::Tensor& images, Mode mode) const;
};

class ResnetNetwork final : public Network {
 public:
  // Borrows `tensors`.
  ResnetNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  NormedConvolution stem_;
  std::vector<ResidualBlock> blocks_;
  Classifier classifier_;
};

}  // namespace slackline::worker

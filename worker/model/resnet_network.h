// The forward pass of residual networks; see resnet_layout.h.
#pragma once

#include <optional>
#include <vector>

#include "worker/model/network.h"

namespace slackline::worker {

// A convolution and the batch normalisation that always follows it.
struct NormedConvolution {
  Convolution convolution;
  BatchNorm norm;

  at::Tensor operator()(const at::Tensor& images, Mode mode) const { return norm(convolution(images), mode); }
};

struct ResidualBlock {
  NormedConvolution first;
  NormedConvolution second;
  std::optional<NormedConvolution> downsample;

  at::Tensor operator()(const at::Tensor& images, Mode mode) const;
};

class ResnetNetwork final : public Network {
 public:
  // Borrows `tensors`.
  ResnetNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode) const override;

 private:
  NormedConvolution stem_;
  std::vector<ResidualBlock> blocks_;
  Linear classifier_;
};

}  // namespace slackline::worker

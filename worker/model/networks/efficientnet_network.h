// The forward pass of EfficientNet-B0; see efficientnet_layout.h.
#pragma once

#include <optional>
#include <vector>

#include "worker/model/networks/network.h"

namespace slackline::worker {

struct MobileLayers {
  std::optional<NormedConvolution> expand;
  NormedConvolution depthwise;
  Convolution squeeze;
  Convolution excite;
  NormedConvolution project;
  bool adds_input = false;
  double stochastic_depth = 0;

  at::Tensor operator()(const at::Tensor& images, Mode mode, Noise& noise) const;
};

class EfficientnetNetwork final : public Network {
 public:
  // Borrows `tensors`.
  EfficientnetNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  const double dropout_;
  NormedConvolution stem_;
  std::vector<MobileLayers> blocks_;
  NormedConvolution head_;
  Classifier classifier_;
};

}  // namespace slackline::worker

#include "worker/model/networks/initialise.h"

#include <ATen/ATen.h>

#include <cmath>

#include "absl/strings/match.h"

namespace slackline::worker {
namespace {

struct Fans {
  double inputs = 1;
  double outputs = 1;
};

// As PyTorch counts them: a group of a convolution is a layer of its own for the inputs, and not for the outputs.
Fans FansOf(const at::Tensor& weight) {
  const auto window = static_cast<double>(weight[0][0].numel());
  return {.inputs = static_cast<double>(weight.size(1)) * window,
          .outputs = static_cast<double>(weight.size(0)) * window};
}

// What lies beyond two deviations is drawn again.
void FillCutNormal(at::Tensor& weight, double deviation, at::Generator& generator) {
  const auto cut = static_cast<float>(2 * deviation);
  weight.normal_(0, deviation, generator);
  for (at::Tensor beyond = weight.abs() > cut; beyond.any().item<bool>(); beyond = weight.abs() > cut) {
    weight.copy_(at::where(beyond, at::empty_like(weight).normal_(0, deviation, generator), weight));
  }
}

void FillWeight(const Initialisation& init, at::Tensor& weight, at::Generator& generator) {
  const Fans fans = FansOf(weight);
  switch (init.kind) {
    case Initialisation::Kind::kReference:
      return;
    case Initialisation::Kind::kKaimingNormal:
      weight.normal_(0, std::sqrt(2 / fans.inputs), generator);
      return;
    case Initialisation::Kind::kKaimingUniform: {
      const double bound = std::sqrt(6 / fans.inputs);
      weight.uniform_(-bound, bound, generator);
      return;
    }
    case Initialisation::Kind::kXavierUniform: {
      const double bound = std::sqrt(6 / (fans.inputs + fans.outputs));
      weight.uniform_(-bound, bound, generator);
      return;
    }
    case Initialisation::Kind::kTruncatedNormal:
      return FillCutNormal(weight, init.deviation, generator);
  }
}

}  // namespace

void Reinitialise(const Initialisation& init, const Layout& layout, const FlatTensors& tensors,
                  at::Generator& generator) {
  if (init.kind == Initialisation::Kind::kReference) return;
  for (const TensorInfo& info : layout.tensors) {
    if (!info.trained && !info.frozen) continue;
    at::Tensor tensor = tensors.Trained(info.name);
    if (absl::EndsWith(info.name, ".bias")) tensor.zero_();
    if (absl::EndsWith(info.name, ".weight") && info.shape.size() > 1) FillWeight(init, tensor, generator);
  }
}

}  // namespace slackline::worker

#include "worker/model/networks/network.h"

#include <ATen/ATen.h>

#include "common/base/check.h"
#include "worker/model/networks/chain_network.h"
#include "worker/model/networks/efficientnet_network.h"
#include "worker/model/networks/label_free_network.h"
#include "worker/model/networks/resnet_network.h"
#include "worker/model/networks/scripted_network.h"
#include "worker/model/networks/texture_network.h"
#include "worker/model/networks/vit_network.h"

namespace slackline::worker {
namespace {

constexpr char kClassifies[] = "this model classifies images, and finds no objects on them";

}  // namespace

at::Tensor Network::TrainScenes(absl::Span<const images::Scene> /*scenes*/) const {
  C10_THROW_ERROR(NotImplementedError, kClassifies);
}

std::vector<images::DetectedObjects> Network::Detect(absl::Span<const images::Scene> /*scenes*/) const {
  C10_THROW_ERROR(NotImplementedError, kClassifies);
}

std::unique_ptr<Network> MakeNetwork(const ModelSpec& spec, const FlatTensors& tensors) {
  if (spec.self_supervised.on()) return std::make_unique<LabelFreeNetwork>(spec, tensors);
  return MakeBackbone(spec, tensors);
}

std::unique_ptr<Network> MakePart(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range) {
  switch (FactsOf(spec.kind).family) {
    case ModelFamily::kChain:
      return std::make_unique<ChainNetwork>(spec, tensors, range);
    case ModelFamily::kVit:
      return std::make_unique<VitNetwork>(spec, tensors, range);
    case ModelFamily::kResnet:
      return std::make_unique<ResnetNetwork>(spec, tensors);
    case ModelFamily::kEfficientnet:
      return std::make_unique<EfficientnetNetwork>(spec, tensors);
    case ModelFamily::kTexture:
      return std::make_unique<TextureNetwork>(spec, tensors);
    case ModelFamily::kTorchScript:
      return MakeScriptedNetwork(spec, tensors);
    case ModelFamily::kExternal:
      break;
  }
  SLACKLINE_CHECK(false);
  return nullptr;
}

std::unique_ptr<Network> MakeBackbone(const ModelSpec& spec, const FlatTensors& tensors) {
  return MakePart(spec, tensors, WholeOf(spec));
}

}  // namespace slackline::worker

#include "worker/model/network.h"

#include "common/check.h"
#include "worker/model/chain_network.h"
#include "worker/model/resnet_network.h"

namespace slackline::worker {

std::unique_ptr<Network> MakeNetwork(const ModelSpec& spec, const FlatTensors& tensors) {
  switch (spec.kind) {
    case ModelKind::kMlp:
    case ModelKind::kCnn:
      return std::make_unique<ChainNetwork>(spec, tensors);
    case ModelKind::kResnet18:
      return std::make_unique<ResnetNetwork>(spec, tensors);
  }
  SLACKLINE_CHECK(false);
  return nullptr;
}

}  // namespace slackline::worker

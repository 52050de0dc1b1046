#include "worker/model/family.h"

#include "common/base/check.h"
#include "worker/model/chain_layout.h"
#include "worker/model/efficientnet_layout.h"
#include "worker/model/resnet_layout.h"
#include "worker/model/texture_layout.h"
#include "worker/model/vit_layout.h"

namespace slackline::worker {
namespace {

uint64_t LastHidden(const ModelSpec& spec) { return spec.hidden.back(); }
uint64_t ResnetWidth(const ModelSpec& spec) { return ResnetBlocks(spec.kind).back().channels.outputs; }
uint64_t EfficientnetWidth(const ModelSpec& /*spec*/) { return kEfficientnetHeadChannels; }
uint64_t VitWidth(const ModelSpec& spec) { return ShapeOfVit(spec).width; }

struct Entry {
  ModelFamily name;
  Family family;
};

constexpr Entry kFamilies[] = {
    {ModelFamily::kChain, {.add = AddChain, .feature_width = LastHidden, .layers = LayersOfChain}},
    {ModelFamily::kResnet, {.add = AddResnet, .feature_width = ResnetWidth, .layers = nullptr}},
    {ModelFamily::kEfficientnet, {.add = AddEfficientnet, .feature_width = EfficientnetWidth, .layers = nullptr}},
    {ModelFamily::kVit, {.add = AddVit, .feature_width = VitWidth, .layers = LayersOfVit}},
    {ModelFamily::kTexture, {.add = AddTexture, .feature_width = LastHidden, .layers = nullptr}},
};

}  // namespace

const Family& FamilyOf(ModelKind kind) {
  const Family* found = nullptr;
  for (const auto& [name, family] : kFamilies) {
    if (name == FactsOf(kind).family) found = &family;
  }
  SLACKLINE_CHECK(found != nullptr);
  return *found;
}

}  // namespace slackline::worker

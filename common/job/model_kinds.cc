#include "common/job/model_kinds.h"

#include "common/base/check.h"

namespace slackline {
namespace {

constexpr uint32_t kMlpHidden[] = {192};
constexpr uint32_t kCnnHidden[] = {128};
constexpr uint32_t kCnnFilters[] = {32, 64};
constexpr uint32_t kTextureHidden[] = {4096, 4096};
constexpr uint32_t kResnet18Blocks[] = {2, 2, 2, 2};
constexpr uint32_t kResnet34Blocks[] = {3, 4, 6, 3};
constexpr uint32_t kResnet101Blocks[] = {3, 4, 23, 3};

constexpr ModelFacts kModels[] = {
    {.kind = ModelKind::kMlp, .family = ModelFamily::kChain, .name = "mlp", .hidden = kMlpHidden, .has_stages = true},
    {.kind = ModelKind::kCnn,
     .family = ModelFamily::kChain,
     .name = "cnn",
     .hidden = kCnnHidden,
     .filters = kCnnFilters,
     .has_stages = true},
    {.kind = ModelKind::kResnet18, .family = ModelFamily::kResnet, .name = "resnet18", .blocks = kResnet18Blocks},
    {.kind = ModelKind::kResnet34, .family = ModelFamily::kResnet, .name = "resnet34", .blocks = kResnet34Blocks},
    {.kind = ModelKind::kResnet50,
     .family = ModelFamily::kResnet,
     .name = "resnet50",
     .blocks = kResnet34Blocks,
     .bottlenecks = true},
    {.kind = ModelKind::kResnet101,
     .family = ModelFamily::kResnet,
     .name = "resnet101",
     .blocks = kResnet101Blocks,
     .bottlenecks = true},
    {.kind = ModelKind::kEfficientnetB0,
     .family = ModelFamily::kEfficientnet,
     .name = "efficientnet_b0",
     .dropout = 0.2,
     .stochastic_depth = 0.2},
    {.kind = ModelKind::kTextureCnn2,
     .family = ModelFamily::kTexture,
     .name = "texture_cnn_2",
     .hidden = kTextureHidden,
     .dropout = 0.5},
    {.kind = ModelKind::kVitTiny,
     .family = ModelFamily::kVit,
     .name = "vit_tiny",
     .dropout = 0,
     .stochastic_depth = 0,
     .has_stages = true,
     .heads = 3},
    {.kind = ModelKind::kVitSmall,
     .family = ModelFamily::kVit,
     .name = "vit_small",
     .dropout = 0,
     .stochastic_depth = 0,
     .has_stages = true,
     .heads = 6},
    {.kind = ModelKind::kVitBase,
     .family = ModelFamily::kVit,
     .name = "vit_base",
     .dropout = 0,
     .stochastic_depth = 0,
     .has_stages = true,
     .heads = 12},
    {.kind = ModelKind::kTorchScript, .family = ModelFamily::kTorchScript, .name = "torchscript"},
    {.kind = ModelKind::kExternal, .family = ModelFamily::kExternal, .name = "external"},
};

}  // namespace

absl::Span<const ModelFacts> AllModels() { return kModels; }

const ModelFacts& FactsOf(ModelKind kind) {
  const ModelFacts* found = nullptr;
  for (const ModelFacts& facts : kModels) {
    if (facts.kind == kind) found = &facts;
  }
  SLACKLINE_CHECK(found != nullptr);
  return *found;
}

std::string KindName(ModelKind kind) { return std::string(FactsOf(kind).name); }

}  // namespace slackline

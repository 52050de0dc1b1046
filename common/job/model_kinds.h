// The table of models: one entry holds what is known of a kind of model. Does not use protobuf, which must not meet
// LibTorch.
//
// A new kind needs an entry here and a value in protos/model.proto. A new family also needs a layout, with an entry in
// worker/model/family.cc, and a network, with a case in worker/model/networks/network.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline {

// Numbers are those of job::Model::Kind.
enum class ModelKind {
  kMlp = 1,
  kCnn = 2,
  kResnet18 = 3,
  kResnet34 = 4,
  kResnet50 = 5,
  kEfficientnetB0 = 6,
  kVitTiny = 7,
  kVitSmall = 8,
  kVitBase = 9,
  kTextureCnn2 = 10,
  // A script's own model.
  kExternal = 11,
  // A user's TorchScript module: ModelSpec::torchscript.
  kTorchScript = 12,
  kResnet101 = 13,
};

// Models of one family have the same layers, in different numbers and sizes.
enum class ModelFamily { kChain, kResnet, kEfficientnet, kVit, kTexture, kTorchScript, kExternal };

struct ModelFacts {
  ModelKind kind = ModelKind::kMlp;
  ModelFamily family = ModelFamily::kChain;
  // Name in the job file.
  absl::string_view name;

  // Values of model.hidden and model.filters if the job has none. A kind without values refuses the setting.
  absl::Span<const uint32_t> hidden = {};
  absl::Span<const uint32_t> filters = {};
  // Reference's values of model.dropout and model.stochastic_depth. A kind without a value refuses the setting.
  std::optional<double> dropout = {};
  std::optional<double> stochastic_depth = {};
  // True if the layers are a chain that worker.stages can cut.
  bool has_stages = false;

  // Sizes of a resnet: the number of blocks of each layer, and whether a block is a bottleneck.
  absl::Span<const uint32_t> blocks = {};
  bool bottlenecks = false;
  // Size of a vision transformer: the number of attention heads of a block.
  uint32_t heads = 0;

  // Returns whether the model has convolutions by model.filters, which can have batch normalisation by
  // model.batch_norm.
  bool has_filters() const { return !filters.empty(); }
  // Returns whether the model cuts images into patches of model.patch_size, and has blocks for model.checkpointing.
  bool has_patches() const { return family == ModelFamily::kVit; }
  // Returns whether the layers are known here: neither a user's module nor a script's model.
  bool built_in() const { return family != ModelFamily::kTorchScript && family != ModelFamily::kExternal; }
};

// Returns all entries, in the order in which messages name kinds.
absl::Span<const ModelFacts> AllModels();
// Returns the entry of a kind. Requires: it has one.
const ModelFacts& FactsOf(ModelKind kind);
// Returns the name of a kind in the job file.
std::string KindName(ModelKind kind);

}  // namespace slackline

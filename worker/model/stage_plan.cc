#include "worker/model/stage_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"
#include "worker/model/layout.h"
#include "worker/model/vit_layout.h"

namespace slackline::worker {
namespace {

bool IsChain(ModelKind kind) { return kind == ModelKind::kMlp || kind == ModelKind::kCnn; }

bool IsVit(ModelKind kind) {
  return kind == ModelKind::kVitTiny || kind == ModelKind::kVitSmall || kind == ModelKind::kVitBase;
}

// Weight and bias of each, and two more where there is a norm.
std::vector<LayerPlan> LayersOfChain(const ModelSpec& spec) {
  const ChainShape shape = ShapeOfChain(spec);
  std::vector<LayerPlan> layers;
  double pixels = static_cast<double>(spec.height) * spec.width;
  for (const LayerShape& layer : shape.convolutions) {
    const auto window = static_cast<double>(layer.inputs * layer.outputs * kChainWindow * kChainWindow);
    layers.push_back({.cost = window * pixels, .tensors = spec.batch_norm ? size_t{4} : size_t{2}});
    pixels /= kChainPooling * kChainPooling;
  }
  for (const LayerShape& layer : shape.linears) {
    layers.push_back({.cost = static_cast<double>(layer.inputs * layer.outputs), .tensors = 2});
  }
  return layers;
}

std::vector<LayerPlan> LayersOfVit(const ModelSpec& spec) {
  // Of width x width products for each token: qkv 3, proj 1, fc1 and fc2 4 each.
  constexpr double kProducts = 12;
  constexpr size_t kBlockTensors = 12;
  const VitShape shape = ShapeOfVit(spec);
  const auto width = static_cast<double>(shape.width), tokens = static_cast<double>(shape.tokens);
  const double pixels = static_cast<double>(spec.channels) * spec.height * spec.width;
  // cls_token, pos_embed, and the patches' weight and bias.
  std::vector<LayerPlan> layers = {{.cost = pixels * width, .tensors = 4}};
  const double block = kProducts * width * width * tokens + 2 * tokens * tokens * width;
  layers.insert(layers.end(), kVitBlocks, {.cost = block, .tensors = kBlockTensors});
  layers.push_back({.cost = width * spec.classes, .tensors = 4});
  return layers;
}

}  // namespace

std::vector<LayerPlan> LayersOf(const ModelSpec& spec) {
  return IsVit(spec.kind) ? LayersOfVit(spec) : LayersOfChain(spec);
}

LayerRange WholeOf(const ModelSpec& spec) { return {.begin = 0, .end = LayersOf(spec).size()}; }

// dearest[k][i]: of the first i layers in k runs, with the best cuts; begins[k][i]: where the last of those runs
// begins.
std::vector<size_t> CutEvenly(const std::vector<double>& costs, size_t stages) {
  const size_t layers = costs.size();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> dearest(stages + 1, std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<size_t>> begins(stages + 1, std::vector<size_t>(layers + 1, 0));
  dearest[0][0] = 0;
  for (size_t k = 1; k <= stages; ++k) {
    for (size_t i = k; i <= layers; ++i) {
      double run = 0;
      for (size_t begin = i; begin-- > 0;) {
        run += costs[begin];
        const double whole = std::max(run, dearest[k - 1][begin]);
        if (whole < dearest[k][i]) {
          dearest[k][i] = whole;
          begins[k][i] = begin;
        }
      }
    }
  }
  std::vector<size_t> cuts = {layers};
  for (size_t k = stages; k > 0; --k) cuts.push_back(begins[k][cuts.back()]);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

absl::StatusOr<std::vector<size_t>> CutModel(const ModelSpec& spec, size_t stages) {
  if (!IsChain(spec.kind) && !IsVit(spec.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker.stages: ", KindName(spec.kind), " cannot be cut; mlp, cnn and vit_* can"));
  }
  if (spec.batch_norm) {
    return absl::InvalidArgumentError(
        "worker.stages: a model with batch_norm cannot be cut: it would normalise by parts of a batch");
  }
  if (spec.dropout > 0 || spec.stochastic_depth > 0) {
    return absl::InvalidArgumentError(
        "worker.stages: a model with dropout or stochastic depth cannot be cut: it draws for whole batches; allowed is "
        "worker.stages: 1, or model.dropout: 0 and model.stochastic_depth: 0");
  }
  const absl::StatusOr<Layout> layout = MakeLayout(spec);
  if (!layout.ok()) return layout.status();
  for (const TensorInfo& tensor : layout->tensors) {
    if (tensor.frozen) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker.stages: a model with frozen tensors cannot be cut: ", tensor.name,
                       " is one; allowed is worker.stages: 1, or no optimizer.groups with frozen: true"));
    }
  }
  std::vector<double> costs;
  for (const LayerPlan& layer : LayersOf(spec)) costs.push_back(layer.cost);
  if (stages == 0 || stages > costs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker.stages is ", stages, "; the model has ", costs.size(), " layers, and a stage needs one"));
  }
  return CutEvenly(costs, stages);
}

}  // namespace slackline::worker

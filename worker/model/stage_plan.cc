#include "worker/model/stage_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/model/family.h"
#include "worker/model/layout.h"

namespace slackline::worker {

std::vector<LayerPlan> LayersOf(const ModelSpec& spec) { return FamilyOf(spec.kind).layers(spec); }

LayerRange WholeOf(const ModelSpec& spec) {
  return {.begin = 0, .end = FactsOf(spec.kind).has_stages ? LayersOf(spec).size() : 0};
}

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
  if (!FactsOf(spec.kind).has_stages) {
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

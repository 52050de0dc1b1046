#include "worker/model/stage_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_layout.h"

namespace slackline::worker {

std::vector<double> LayerCosts(const ModelSpec& spec) {
  const ChainShape shape = ShapeOfChain(spec);
  std::vector<double> costs;
  double pixels = static_cast<double>(spec.height) * spec.width;
  for (const LayerShape& layer : shape.convolutions) {
    costs.push_back(static_cast<double>(layer.inputs * layer.outputs * kChainWindow * kChainWindow) * pixels);
    pixels /= kChainPooling * kChainPooling;
  }
  for (const LayerShape& layer : shape.linears) costs.push_back(static_cast<double>(layer.inputs * layer.outputs));
  return costs;
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
  if (spec.kind != ModelKind::kMlp && spec.kind != ModelKind::kCnn) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker.stages: ", KindName(spec.kind), " cannot be cut; mlp and cnn can"));
  }
  if (spec.batch_norm) {
    return absl::InvalidArgumentError(
        "worker.stages: a model with batch_norm cannot be cut: it would normalise by parts of a batch");
  }
  const std::vector<double> costs = LayerCosts(spec);
  if (stages == 0 || stages > costs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker.stages is ", stages, "; the model has ", costs.size(), " layers, and a stage needs one"));
  }
  return CutEvenly(costs, stages);
}

}  // namespace slackline::worker

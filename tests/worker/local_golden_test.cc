// Rounds of local training and the outer optimizer together, against values made by PyTorch (make_local_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ps/shard/shard_state.h"
#include "tests/worker/formula_model.h"
#include "worker/local_training/local_round.h"

namespace slackline::worker::local_golden_test {
namespace {

constexpr size_t kWorkers = 3;
constexpr int kSteps = 4;

std::map<std::string, std::vector<std::vector<double>>> ReadGolden() {
  std::map<std::string, std::vector<std::vector<double>>> cases;
  std::ifstream file(std::string(SLACKLINE_TEST_FOLDER) + "/local_golden.txt");
  std::string line, name;
  while (std::getline(file, line)) {
    if (line.starts_with("case ")) name = line.substr(5);
    if (name.empty() || line.starts_with("case ")) continue;
    std::istringstream words(line);
    std::vector<double>& row = cases[name].emplace_back();
    double value = 0;
    words >> value;  // the round
    while (words >> value) row.push_back(value);
  }
  return cases;
}

ByteSegments Bytes(absl::Span<const float> values) {
  return ByteSegments({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)});
}

// Plays the case, and compares the weights after each round.
void Check(const std::string& name, const LocalConfig& local, const OptimizerConfig& outer) {
  const auto cases = ReadGolden();
  ASSERT_TRUE(cases.contains(name)) << "local_golden.txt has no such case";
  ps::ShardState shard({.begin = 0, .end = FormulaModel::kElements, .trained = FormulaModel::kElements}, outer, 16);
  FormulaModel first;
  ASSERT_TRUE(shard.Seed(Bytes(first.parameters())).ok());
  std::vector<FormulaModel> models(kWorkers);
  LocalRound round(local);
  std::vector<std::shared_ptr<OptimizerState>> states(kWorkers);
  int step = 0;
  for (const std::vector<double>& row : cases.at(name)) {
    std::vector<ps::Contribution> pushes;
    for (size_t i = 0; i < kWorkers; ++i) {
      FormulaModel& model = models[i];
      shard.View().CopyTo(model.parameters());
      round.Begin(model, std::move(states[i]));
      for (int s = 0; s < kSteps; ++s) {
        model.SetGoal({.worker = static_cast<int>(i), .step = step + s});
        round.Step(model, *model.Model::Step({}));
      }
      round.Finish(model);
      states[i] = round.TakeState();
      pushes.push_back(
          {.pieces = {{.elements = FormulaModel::kElements, .bytes = Bytes(model.push())}}, .weight = 1.0 / kWorkers});
    }
    step += kSteps;
    shard.Apply(pushes, {.samples = 1});
    std::vector<float> weights(FormulaModel::kElements);
    shard.View().CopyTo(absl::MakeSpan(weights));
    ASSERT_EQ(row.size(), weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_NEAR(weights[i], row[i], 2e-6 * std::max(1.0, std::abs(row[i]))) << "step " << step << ", element " << i;
    }
  }
}

TEST(LocalGolden, DiLoCoIsPyTorchsAdamWInsideNesterov) {
  Check("diloco",
        {.steps = kSteps,
         .optimizer = {.kind = OptimizerKind::kAdamW, .lr = 0.01, .weight_decay = 0.1},
         .keep_state = true},
        {.lr = 0.7, .momentum = 0.9, .nesterov = true});
}

TEST(LocalGolden, LocalSgdIsPyTorchsSgdAndTheMean) {
  Check("local_sgd", {.steps = kSteps, .optimizer = {.lr = 0.05, .momentum = 0.5}}, {.lr = 1});
}

}  // namespace
}  // namespace slackline::worker::local_golden_test

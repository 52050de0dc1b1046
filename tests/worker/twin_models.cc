// Writes what twin.py compares with: four trained models, each with its weights before training, and what Slackline
// says of them on the test images.
//
// usage: twin_models FOLDER
//   FOLDER/{train,t10k}-*          small IDX files
//   FOLDER/NAME.safetensors        trained
//   FOLDER/NAME-seed.safetensors   as made from the seed
//   FOLDER/expected.json           {"NAME": {"kind", "batch_norm", "seed", "loss", "accuracy", "predictions"}}
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/check.h"
#include "tests/worker/test_data.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"
#include "worker/model/safetensors.h"

namespace slackline::worker {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kTestImages = 200;
constexpr double kMean = 0.286, kDeviation = 0.353;

struct Case {
  std::string name;
  ModelSpec spec;
};

std::vector<Case> Cases() {
  return {{"mlp", {.kind = ModelKind::kMlp, .hidden = {192}, .filters = {}}},
          {"mlp-deep", {.kind = ModelKind::kMlp, .hidden = {64, 32}, .filters = {}}},
          {"cnn", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}}},
          {"cnn-batch-norm", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}, .batch_norm = true}}};
}

Batch LoadAll(const Dataset& data) {
  std::vector<uint32_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  data.Load(indices, kMean, kDeviation, batch);
  return batch;
}

// A few steps, so that no value is still what it began with.
void Train(Model& model, const Batch& batch) {
  for (int step = 0; step < 3; ++step) {
    SLACKLINE_CHECK(model.Step({.images = batch.images, .labels = batch.labels}).ok());
    for (size_t i = 0; i < model.elements(); ++i) {
      if (i < model.trained_elements()) {
        model.parameters()[i] -= 0.1f * model.push()[i];
      } else {
        model.parameters()[i] = model.push()[i];
      }
    }
  }
}

nlohmann::json Describe(const Case& one, Model& model, const Batch& test) {
  std::vector<int64_t> predictions(test.size());
  const auto result = model.Evaluate({.images = test.images, .labels = test.labels}, absl::MakeSpan(predictions));
  SLACKLINE_CHECK(result.ok());
  return {{"kind", one.spec.kind == ModelKind::kMlp ? "mlp" : "cnn"},
          {"batch_norm", one.spec.batch_norm},
          {"seed", kSeed},
          {"loss", result->loss},
          {"accuracy", static_cast<double>(result->correct) / static_cast<double>(result->samples)},
          {"predictions", predictions}};
}

void WriteAll(const std::string& folder) {
  SetComputeThreads(1);
  WriteImages(folder, "train", 64);
  WriteImages(folder, "t10k", kTestImages);
  const Batch train = LoadAll(*Dataset::ReadIdx(folder, "train"));
  const Batch test = LoadAll(*Dataset::ReadIdx(folder, "t10k"));
  nlohmann::json expected;
  for (const Case& one : Cases()) {
    std::unique_ptr<Model> model = *Model::Create(one.spec, kSeed);
    const std::string path = folder + "/" + one.name;
    SLACKLINE_CHECK(WriteSafetensors(path + "-seed.safetensors", model->tensors(), model->parameters()).ok());
    Train(*model, train);
    SLACKLINE_CHECK(WriteSafetensors(path + ".safetensors", model->tensors(), model->parameters()).ok());
    expected[one.name] = Describe(one, *model, test);
  }
  std::ofstream(folder + "/expected.json") << expected.dump(1);
}

}  // namespace
}  // namespace slackline::worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: twin_models FOLDER\n";
    return 2;
  }
  slackline::worker::WriteAll(argv[1]);
  return 0;
}

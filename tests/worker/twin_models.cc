// Writes what twin.py compares with: trained models, each with its weights before training, and what Slackline says of
// them on the test images.
//
// usage: twin_models FOLDER
//   FOLDER/{train,t10k}-*          small IDX files
//   FOLDER/NAME.safetensors        trained
//   FOLDER/NAME-seed.safetensors   as made from the seed
//   FOLDER/NAME-push.safetensors   what the trained model pushes for the first training images
//   FOLDER/expected.json           {"NAME": {"kind", "batch_norm", "seed", "loss", "accuracy", "predictions",
//                                  "log_probabilities": those of the first test images}}
#include <algorithm>
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
// How many images' outputs are written, and how many the push is made of.
constexpr uint32_t kOutputs = 8;
constexpr uint32_t kPushedImages = 8;
constexpr double kMean = 0.286, kDeviation = 0.353;

struct Case {
  std::string name;
  ModelSpec spec;
};

std::vector<Case> Cases() {
  return {{"mlp", {.kind = ModelKind::kMlp, .hidden = {192}, .filters = {}}},
          {"mlp-deep", {.kind = ModelKind::kMlp, .hidden = {64, 32}, .filters = {}}},
          {"cnn", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}}},
          {"cnn-batch-norm", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}, .batch_norm = true}},
          {"resnet18", {.kind = ModelKind::kResnet18, .hidden = {}, .filters = {}}}};
}

Batch LoadAll(const Dataset& data) {
  std::vector<uint32_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  data.Load(indices, kMean, kDeviation, batch);
  return batch;
}

BatchView First(const Batch& batch, size_t count) {
  const size_t pixels = batch.images.size() / batch.size();
  return {.images = absl::MakeConstSpan(batch.images).subspan(0, count * pixels),
          .labels = absl::MakeConstSpan(batch.labels).subspan(0, count)};
}

// A few steps, so that no value is still what it began with.
void Train(Model& model, const Batch& batch) {
  for (int step = 0; step < 3; ++step) {
    SLACKLINE_CHECK(model.Step({.images = batch.images, .labels = batch.labels}).ok());
    const absl::Span<float> parameters = model.parameters(), push = model.push();
    for (size_t i = 0; i < model.trained_elements(); ++i) parameters[i] -= 0.1f * push[i];
    std::copy(push.begin() + model.trained_elements(), push.end(), parameters.begin() + model.trained_elements());
  }
}

std::string KindName(ModelKind kind) {
  switch (kind) {
    case ModelKind::kMlp:
      return "mlp";
    case ModelKind::kCnn:
      return "cnn";
    case ModelKind::kResnet18:
      return "resnet18";
  }
  return "";
}

// The whole output for an image: its loss, if its label were this class, for each class.
std::vector<double> LogProbabilities(Model& model, const ModelSpec& spec, absl::Span<const float> image) {
  std::vector<double> outputs;
  for (int64_t label = 0; label < spec.classes; ++label) {
    int64_t prediction = 0;
    const auto result =
        model.Evaluate({.images = image, .labels = absl::MakeConstSpan(&label, 1)}, absl::MakeSpan(&prediction, 1));
    SLACKLINE_CHECK(result.ok());
    outputs.push_back(-result->loss);
  }
  return outputs;
}

nlohmann::json Describe(const Case& one, Model& model, const Batch& test) {
  std::vector<int64_t> predictions(test.size());
  const auto result = model.Evaluate({.images = test.images, .labels = test.labels}, absl::MakeSpan(predictions));
  SLACKLINE_CHECK(result.ok());
  std::vector<std::vector<double>> outputs;
  const size_t pixels = test.images.size() / test.size();
  for (size_t i = 0; i < kOutputs; ++i) {
    outputs.push_back(LogProbabilities(model, one.spec, absl::MakeConstSpan(test.images).subspan(i * pixels, pixels)));
  }
  return {{"kind", KindName(one.spec.kind)},
          {"batch_norm", one.spec.batch_norm},
          {"seed", kSeed},
          {"loss", result->loss},
          {"accuracy", static_cast<double>(result->correct) / static_cast<double>(result->samples)},
          {"predictions", predictions},
          {"log_probabilities", outputs}};
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
    SLACKLINE_CHECK(model->Step(First(train, kPushedImages)).ok());
    SLACKLINE_CHECK(WriteSafetensors(path + "-push.safetensors", model->tensors(), model->push()).ok());
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

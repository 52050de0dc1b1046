// Writes what twin.py compares with: trained models, each with its weights before training, and Slackline's results for
// them on the test images.
//
// usage: twin_models FOLDER basic|zoo
//   FOLDER/{train,t10k}-*          small IDX files
//   FOLDER/NAME.safetensors        trained
//   FOLDER/NAME-seed.safetensors   as made from the seed
//   FOLDER/NAME-push.safetensors   what the trained model pushes for the first training images
//   FOLDER/expected.json           {"NAME": {"kind", "init", "label_smoothing", "class_weights", "seed",
//                                  "rounding", "loss", "accuracy", "predictions", "log_probabilities": those of the
//                                  first test images}}
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/base/check.h"
#include "images/dataset/dataset.h"
#include "tests/images/test_data.h"
#include "worker/model/model.h"
#include "worker/model/weights/safetensors.h"

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
  float lr = 0.1f;
  // How far the gradient of a tensor may be from the twin's, beside its length.
  double rounding = 1e-4;
};

ModelSpec SpecOf(ModelKind kind) {
  ModelSpec spec;
  spec.kind = kind;
  spec.patch_size = 7;  // images are 28 x 28
  return spec;
}

ModelSpec InitialisedAs(Initialisation::Kind kind) {
  ModelSpec spec{.kind = ModelKind::kCnn, .hidden = {16}, .filters = {4, 8}, .batch_norm = true};
  spec.init.kind = kind;
  return spec;
}

std::vector<Case> BasicCases() {
  ModelSpec loss{.kind = ModelKind::kMlp, .hidden = {32}, .filters = {}};
  loss.label_smoothing = 0.1;
  loss.class_weights = {1, 2, 0.5, 3, 0, 1, 1, 0.25, 1, 1.5};
  return {{"mlp", {.kind = ModelKind::kMlp, .hidden = {192}, .filters = {}}},
          {"mlp-deep", {.kind = ModelKind::kMlp, .hidden = {64, 32}, .filters = {}}},
          {"mlp-loss", loss},
          {"cnn", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}}},
          {"cnn-batch-norm", {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}, .batch_norm = true}},
          {"cnn-kaiming-normal", InitialisedAs(Initialisation::Kind::kKaimingNormal)},
          {"cnn-kaiming-uniform", InitialisedAs(Initialisation::Kind::kKaimingUniform)},
          {"cnn-xavier-uniform", InitialisedAs(Initialisation::Kind::kXavierUniform)},
          {"cnn-truncated-normal", InitialisedAs(Initialisation::Kind::kTruncatedNormal)},
          {"resnet18", SpecOf(ModelKind::kResnet18)}};
}

// The larger sizes of vit differ from vit_tiny in their widths only. At 0.1 deep networks are nonsense after three
// steps.
std::vector<Case> ZooCases() {
  ModelSpec texture = SpecOf(ModelKind::kTextureCnn2);
  texture.hidden = {64, 32};
  constexpr float kLr = 0.01f;
  constexpr double kDeep = 1e-3;
  // A value that is rounded to the other side of ReLU's corner behind the last layers reaches all gradients.
  constexpr double kCorner = 0.1;
  return {{"resnet34", SpecOf(ModelKind::kResnet34), kLr, kCorner},
          {"resnet50", SpecOf(ModelKind::kResnet50), kLr, kCorner},
          {"efficientnet_b0", SpecOf(ModelKind::kEfficientnetB0), kLr, kDeep},
          {"vit_tiny", SpecOf(ModelKind::kVitTiny), kLr},
          {"texture_cnn_2", texture, kLr}};
}

images::Batch LoadAll(const images::Dataset& data) {
  std::vector<uint32_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), 0);
  images::Batch batch;
  SLACKLINE_CHECK(data.Load(indices, kMean, kDeviation, batch).ok());
  return batch;
}

BatchView First(const images::Batch& batch, size_t count) {
  const size_t pixels = batch.images.size() / batch.size();
  return {.images = absl::MakeConstSpan(batch.images).subspan(0, count * pixels),
          .labels = absl::MakeConstSpan(batch.labels).subspan(0, count)};
}

// A few steps, so that no value is still what it began with.
void Train(Model& model, const images::Batch& batch, float lr) {
  for (int step = 0; step < 3; ++step) {
    SLACKLINE_CHECK(model.Step({.images = batch.images, .labels = batch.labels}).ok());
    const absl::Span<float> parameters = model.parameters(), push = model.push();
    for (size_t i = 0; i < model.trained_elements(); ++i) parameters[i] -= lr * push[i];
    std::copy(push.begin() + model.trained_elements(), push.end(), parameters.begin() + model.trained_elements());
  }
}

std::string InitName(Initialisation::Kind kind) {
  switch (kind) {
    case Initialisation::Kind::kReference:
      return "default";
    case Initialisation::Kind::kKaimingNormal:
      return "kaiming_normal";
    case Initialisation::Kind::kKaimingUniform:
      return "kaiming_uniform";
    case Initialisation::Kind::kXavierUniform:
      return "xavier_uniform";
    case Initialisation::Kind::kTruncatedNormal:
      return "truncated_normal";
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

nlohmann::json Describe(const Case& one, Model& model, const images::Batch& test) {
  std::vector<int64_t> predictions(test.size());
  const auto result = model.Evaluate({.images = test.images, .labels = test.labels}, absl::MakeSpan(predictions));
  SLACKLINE_CHECK(result.ok());
  std::vector<std::vector<double>> outputs;
  const size_t pixels = test.images.size() / test.size();
  for (size_t i = 0; i < kOutputs; ++i) {
    outputs.push_back(LogProbabilities(model, one.spec, absl::MakeConstSpan(test.images).subspan(i * pixels, pixels)));
  }
  return {{"kind", KindName(one.spec.kind)},
          {"init", InitName(one.spec.init.kind)},
          {"label_smoothing", one.spec.label_smoothing},
          {"class_weights", one.spec.class_weights},
          {"seed", kSeed},
          {"rounding", one.rounding},
          {"loss", result->loss},
          {"accuracy", static_cast<double>(result->correct) / static_cast<double>(result->samples)},
          {"predictions", predictions},
          {"log_probabilities", outputs}};
}

void WriteAll(const std::string& folder, const std::vector<Case>& cases) {
  SetComputeThreads(1);
  WriteImages(folder, "train", 64);
  WriteImages(folder, "t10k", kTestImages);
  const images::Batch train = LoadAll(*images::Dataset::ReadIdx(folder, "train"));
  const images::Batch test = LoadAll(*images::Dataset::ReadIdx(folder, "t10k"));
  nlohmann::json expected;
  for (const Case& one : cases) {
    std::unique_ptr<Model> model = *Model::Create(one.spec, kSeed);
    const std::string path = folder + "/" + one.name;
    SLACKLINE_CHECK(WriteSafetensors(path + "-seed.safetensors", model->tensors(), model->parameters()).ok());
    Train(*model, train, one.lr);
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
  const std::string set = argc == 3 ? argv[2] : "";
  if (set != "basic" && set != "zoo") {
    std::cerr << "usage: twin_models FOLDER basic|zoo\n";
    return 2;
  }
  slackline::worker::WriteAll(argv[1], set == "zoo" ? slackline::worker::ZooCases() : slackline::worker::BasicCases());
  return 0;
}

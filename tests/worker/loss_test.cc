// Losses of outputs that are known: a network whose last layer has only biases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::loss_test {
namespace {

constexpr double kOutputs[] = {1, -0.5, 0.25};
const std::vector<int64_t> kLabels = {0, 2, 2, 1};
const std::vector<int64_t> kOtherLabels = {1, 0, 2, 1};
constexpr double kClassWeights[] = {0.5, 4, 1};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Expected {
  double loss = 0;
  double slopes[3] = {};  // by output
};

// By the definitions, with y (1 - s) + s / 3 as the target. Of mixed images y is `share` at the label and the rest at
// the other one, and so is the weight.
Expected Compute(LossKind kind, double smoothing, bool weighted, double share = 1) {
  Expected expected;
  for (size_t i = 0; i < kLabels.size(); ++i) {
    const int64_t label = kLabels[i], other = kOtherLabels[i];
    const double of_class = share * kClassWeights[label] + (1 - share) * kClassWeights[other];
    const double weight = (weighted ? of_class : 1) / (3 * static_cast<double>(kLabels.size()));
    for (int64_t k = 0; k < 3; ++k) {
      const double y = (k == label ? share : 0) + (k == other ? 1 - share : 0);
      const double output = kOutputs[k], target = y * (1 - smoothing) + smoothing / 3;
      if (kind == LossKind::kMeanSquare) {
        expected.loss += weight * std::pow(output - target, 2);
        expected.slopes[k] += weight * 2 * (output - target);
      } else {
        expected.loss -= weight * (target * std::log(Sigmoid(output)) + (1 - target) * std::log(1 - Sigmoid(output)));
        expected.slopes[k] += weight * (Sigmoid(output) - target);
      }
    }
  }
  return expected;
}

absl::Span<float> Named(Model& model, absl::Span<float> vector, const std::string& name) {
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name == name) return vector.subspan(tensor.offset, tensor.elements());
  }
  ADD_FAILURE() << name;
  return {};
}

class Loss : public testing::TestWithParam<LossKind> {
 protected:
  static std::unique_ptr<Model> Make(const ModelSpec& spec) {
    auto model = MakeModel(spec);
    for (float& weight : Named(*model, model->parameters(), "fc2.weight")) weight = 0;
    const auto biases = Named(*model, model->parameters(), "fc2.bias");
    for (size_t k = 0; k < 3; ++k) biases[k] = static_cast<float>(kOutputs[k]);
    return model;
  }
  ModelSpec Spec() const {
    ModelSpec spec = TinyMlp();
    spec.loss = GetParam();
    return spec;
  }
  static images::Batch Images(const ModelSpec& spec) {
    images::Batch batch = TinyBatch(spec, kLabels.size());
    batch.labels = kLabels;
    return batch;
  }
};

TEST_P(Loss, AndItsGradientAreThoseOfTheDefinition) {
  const auto model = Make(Spec());
  const auto result = model->Step(ViewOf(Images(Spec())));
  ASSERT_TRUE(result.ok()) << result.status();
  const Expected expected = Compute(GetParam(), 0, false);
  EXPECT_NEAR(result->loss, expected.loss, 1e-6);
  const auto slopes = Named(*model, model->push(), "fc2.bias");
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(slopes[k], expected.slopes[k], 1e-6) << k;
}

TEST_P(Loss, TakesSmoothingAndClassWeightsInTrainingOnly) {
  ModelSpec spec = Spec();
  spec.label_smoothing = 0.2;
  spec.class_weights.assign(std::begin(kClassWeights), std::end(kClassWeights));
  const auto model = Make(spec);
  const images::Batch batch = Images(spec);
  const Expected expected = Compute(GetParam(), 0.2, true);
  EXPECT_NEAR(model->Step(ViewOf(batch))->loss, expected.loss, 1e-6);
  const auto slopes = Named(*model, model->push(), "fc2.bias");
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(slopes[k], expected.slopes[k], 1e-6) << k;
  std::vector<int64_t> predictions(kLabels.size());
  EXPECT_NEAR(model->Evaluate(ViewOf(batch), absl::MakeSpan(predictions))->loss, Compute(GetParam(), 0, false).loss,
              1e-6);
  EXPECT_THAT(predictions, testing::Each(0));
}

TEST_P(Loss, OfMixedImagesIsByTheirShares) {
  ModelSpec spec = Spec();
  spec.label_smoothing = 0.2;
  spec.class_weights.assign(std::begin(kClassWeights), std::end(kClassWeights));
  const auto model = Make(spec);
  images::Batch batch = Images(spec);
  batch.other_labels = kOtherLabels;
  batch.share = 0.75;
  const Expected expected = Compute(GetParam(), 0.2, true, 0.75);
  const auto result = model->Step(ViewOf(batch));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->loss, expected.loss, 1e-6);
  const auto slopes = Named(*model, model->push(), "fc2.bias");
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(slopes[k], expected.slopes[k], 1e-6) << k;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Loss, testing::Values(LossKind::kMeanSquare, LossKind::kBinaryCrossEntropy),
                         [](const auto& kind) { return kind.param == LossKind::kMeanSquare ? "mse" : "bce"; });

}  // namespace
}  // namespace slackline::worker::loss_test

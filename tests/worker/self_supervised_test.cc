// Training without labels, against plain loops over doubles: the mlp's forward pass, its head, both losses, the
// teacher, and neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/model_fixture.h"
#include "worker/group/local_group.h"

namespace slackline::worker::self_supervised_test {
namespace {

using ::testing::HasSubstr;
using Method = SelfSupervised::Method;
using Row = std::vector<double>;
using Rows = std::vector<Row>;
using Weights = std::vector<double>;

ModelSpec LabelFree(ModelSpec spec, Method method, uint32_t views = 2) {
  spec.self_supervised = {
      .method = method, .views = views, .temperature = 0.5, .hidden = 7, .outputs = 4, .teacher_momentum = 0.75};
  return spec;
}

// Of so many images, each with its views.
images::Batch Views(const ModelSpec& spec, size_t images) {
  images::Batch batch = TinyBatch(spec, images * spec.self_supervised.views);
  batch.labels.resize(images);
  batch.views = spec.self_supervised.views;
  return batch;
}

Weights ToDouble(absl::Span<const float> values) { return {values.begin(), values.end()}; }

// A tensor of the flat vector.
absl::Span<const double> Part(const Model& model, const Weights& flat, const std::string& name) {
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name == name) return absl::MakeConstSpan(flat).subspan(tensor.offset, tensor.elements());
  }
  ADD_FAILURE() << name;
  return {};
}

Rows Linear(const Model& model, const Weights& flat, const std::string& name, const Rows& in) {
  const auto weight = Part(model, flat, name + ".weight"), bias = Part(model, flat, name + ".bias");
  Rows out;
  for (const Row& x : in) {
    Row y(bias.begin(), bias.end());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    }
    out.push_back(y);
  }
  return out;
}

Rows Relu(Rows rows) {
  for (Row& row : rows) {
    for (double& value : row) value = std::max(0.0, value);
  }
  return rows;
}

// By the statistics of the rows.
Rows BatchNorm(const Model& model, const Weights& flat, const std::string& name, Rows rows) {
  const auto scale = Part(model, flat, name + ".weight"), shift = Part(model, flat, name + ".bias");
  const auto count = static_cast<double>(rows.size());
  for (size_t c = 0; c < scale.size(); ++c) {
    double mean = 0, variance = 0;
    for (const Row& row : rows) mean += row[c] / count;
    for (const Row& row : rows) variance += std::pow(row[c] - mean, 2) / count;
    for (Row& row : rows) row[c] = (row[c] - mean) / std::sqrt(variance + 1e-5) * scale[c] + shift[c];
  }
  return rows;
}

Rows Perceptron(const Model& model, const Weights& flat, const std::string& name, const Rows& in) {
  return Linear(model, flat, name + ".3",
                Relu(BatchNorm(model, flat, name + ".1", Linear(model, flat, name + ".0", in))));
}

Rows Features(const Model& model, const Weights& flat, const images::Batch& batch) {
  Rows images(batch.images.size() / 16);
  for (size_t i = 0; i < batch.images.size(); ++i) images[i / 16].push_back(batch.images[i]);
  return Relu(Linear(model, flat, "fc1", images));
}

double Cosine(const Row& a, const Row& b) {
  double product = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return product / std::sqrt(aa * bb);
}

// Equation 1 of the paper, for each row and each other view of its image.
double NtXent(const Rows& z, size_t images, double temperature) {
  double sum = 0, pairs = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    double others = 0;
    for (size_t k = 0; k < z.size(); ++k) others += k == i ? 0 : std::exp(Cosine(z[i], z[k]) / temperature);
    for (size_t j = i % images; j < z.size(); j += images) {
      if (j == i) continue;
      sum -= std::log(std::exp(Cosine(z[i], z[j]) / temperature) / others);
      ++pairs;
    }
  }
  return sum / pairs;
}

// Equation 2, and its mirror image: of more than two views twice the mean over pairs.
double Byol(const Rows& predictions, const Rows& targets, size_t images) {
  double sum = 0, pairs = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    for (size_t j = i % images; j < predictions.size(); j += images) {
      if (j == i) continue;
      sum += 2 - 2 * Cosine(predictions[i], targets[j]);
      ++pairs;
    }
  }
  return 2 * sum / pairs;
}

struct Case {
  Method method = Method::kContrastive;
  uint32_t views = 2;
};

class ViewLoss : public testing::TestWithParam<Case> {
 protected:
  const ModelSpec spec_ = LabelFree(TinyMlp(), GetParam().method, GetParam().views);
  const std::unique_ptr<Model> model_ = MakeModel(spec_);
  const images::Batch batch_ = Views(spec_, 5);

  double Expected(const Weights& weights, const Weights& teacher) const {
    const Rows z = Perceptron(*model_, weights, "projection", Features(*model_, weights, batch_));
    if (GetParam().method == Method::kContrastive) return NtXent(z, 5, spec_.self_supervised.temperature);
    return Byol(Perceptron(*model_, weights, "prediction", z),
                Perceptron(*model_, teacher, "projection", Features(*model_, teacher, batch_)), 5);
  }
};

INSTANTIATE_TEST_SUITE_P(, ViewLoss,
                         testing::Values(Case{Method::kContrastive, 2}, Case{Method::kContrastive, 3},
                                         Case{Method::kSelfDistillation, 2}, Case{Method::kSelfDistillation, 3}),
                         [](const testing::TestParamInfo<Case>& info) {
                           return (info.param.method == Method::kContrastive ? "Contrastive" : "SelfDistillation") +
                                  std::to_string(info.param.views);
                         });

TEST_P(ViewLoss, IsThatOfItsPaperAndSoIsItsGradient) {
  ASSERT_TRUE(model_->MoveTeacher().ok());
  // The teacher is another one than the student.
  for (size_t i = 0; i < model_->trained_elements(); ++i) {
    model_->parameters()[i] += 0.05f * static_cast<float>(i % 7) - 0.15f;
  }
  const Weights weights = ToDouble(model_->parameters()), teacher = ToDouble(model_->teacher());
  const auto result = model_->Step(View(batch_));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 5u);
  EXPECT_NEAR(result->loss, Expected(weights, teacher), 2e-5);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < model_->trained_elements(); ++i) {
    Weights more = weights, less = weights;
    more[i] += kStep;
    less[i] -= kStep;
    const double slope = (Expected(more, teacher) - Expected(less, teacher)) / (2 * kStep);
    ASSERT_NEAR(model_->push()[i], slope, 1e-4) << "element " << i;
  }
}

TEST_P(ViewLoss, LabelsDoNotCount) {
  ASSERT_TRUE(model_->MoveTeacher().ok());
  const double loss = model_->Step(View(batch_))->loss;
  const std::vector<float> push = Copy(model_->push());
  images::Batch other = batch_;
  for (int64_t& label : other.labels) label = (label + 1) % 3;
  EXPECT_EQ(model_->Step(View(other))->loss, loss);
  EXPECT_EQ(Copy(model_->push()), push);
}

TEST(SelfSupervised, TheTeacherIsTheExactAverageOfTheWeights) {
  const auto model = MakeModel(LabelFree(TinyMlp(), Method::kSelfDistillation));
  ASSERT_TRUE(model->MoveTeacher().ok());
  EXPECT_EQ(Copy(model->teacher()), Copy(model->parameters()));
  Weights expected = ToDouble(model->parameters());
  for (int step = 1; step <= 5; ++step) {
    for (float& weight : model->parameters()) weight += 0.25f * static_cast<float>(step);
    // Neither a step nor an evaluation moves it.
    const std::vector<float> before = Copy(model->teacher());
    ASSERT_TRUE(model->Step(View(Views(LabelFree(TinyMlp(), Method::kSelfDistillation), 4))).ok());
    EXPECT_EQ(Copy(model->teacher()), before);
    ASSERT_TRUE(model->MoveTeacher().ok());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * model->parameters()[i];
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(model->teacher()[i], expected[i], 1e-5) << i;
  }
}

TEST(SelfSupervised, ATeacherCanBeGiven) {
  const auto model = MakeModel(LabelFree(TinyMlp(), Method::kSelfDistillation));
  const std::vector<float> given(model->elements(), 2);
  ASSERT_TRUE(model->SetTeacher(given).ok());
  EXPECT_EQ(Copy(model->teacher()), given);
  // It goes on from there, and does not become the weights.
  ASSERT_TRUE(model->MoveTeacher().ok());
  EXPECT_NEAR(model->teacher()[0], 1.5 + 0.25 * model->parameters()[0], 1e-6);
  EXPECT_TRUE(MakeModel(LabelFree(TinyMlp(), Method::kContrastive))->teacher().empty());
  EXPECT_TRUE(MakeModel(TinyMlp())->teacher().empty());
}

TEST(SelfSupervised, NeighboursVoteAsPlainLoopsSay) {
  ModelSpec spec = LabelFree(TinyMlp(), Method::kContrastive);
  spec.hidden = {32};  // so many that none is all 0
  spec.self_supervised.neighbours = 5;
  spec.self_supervised.neighbour_temperature = 0.2;
  const auto model = MakeModel(spec);
  // Neither set is a multiple of how many are compared at a time.
  const images::Batch known = TinyBatch(spec, 60), all = TinyBatch(spec, 330);
  images::Batch asked;
  asked.images.assign(all.images.begin() + 60 * 16, all.images.end());
  asked.labels.assign(all.labels.begin() + 60, all.labels.end());
  std::vector<int64_t> predictions(asked.labels.size());
  EXPECT_EQ(model->Evaluate(View(asked), absl::MakeSpan(predictions)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const BatchView whole = View(known);
  ASSERT_TRUE(model->Remember({.images = whole.images.first(25 * 16), .labels = whole.labels.first(25)}).ok());
  ASSERT_TRUE(model->Remember({.images = whole.images.subspan(25 * 16), .labels = whole.labels.subspan(25)}).ok());
  const auto result = model->Evaluate(View(asked), absl::MakeSpan(predictions));
  ASSERT_TRUE(result.ok()) << result.status();

  const Weights weights = ToDouble(model->parameters());
  const Rows near = Features(*model, weights, known), rows = Features(*model, weights, asked);
  double missed = 0;
  uint64_t correct = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::pair<double, int64_t>> order;
    for (size_t k = 0; k < near.size(); ++k) order.emplace_back(Cosine(rows[i], near[k]), known.labels[k]);
    std::sort(order.rbegin(), order.rend());
    std::vector<double> votes(3);
    double sum = 0;
    for (size_t k = 0; k < 5; ++k) {
      votes[static_cast<size_t>(order[k].second)] += std::exp(order[k].first / 0.2);
      sum += std::exp(order[k].first / 0.2);
    }
    const int64_t best = std::max_element(votes.begin(), votes.end()) - votes.begin();
    EXPECT_EQ(predictions[i], best) << i;
    correct += best == asked.labels[i] ? 1 : 0;
    missed += 1 - votes[static_cast<size_t>(asked.labels[i])] / sum;
  }
  EXPECT_EQ(result->correct, correct);
  EXPECT_GT(correct, rows.size() / 2);
  EXPECT_NEAR(result->loss, missed / static_cast<double>(rows.size()), 1e-5);
  model->Forget();
  EXPECT_EQ(model->Evaluate(View(asked), absl::MakeSpan(predictions)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeModel(TinyMlp())->Remember(View(known)).code(), absl::StatusCode::kUnimplemented);
}

TEST(SelfSupervised, FewerImagesThanNeighboursAllVote) {
  ModelSpec spec = LabelFree(TinyMlp(), Method::kContrastive);
  spec.self_supervised.neighbours = 50;
  spec.self_supervised.neighbour_temperature = 0.001;
  const auto model = MakeModel(spec);
  const images::Batch batch = TinyBatch(spec, 4);
  std::vector<int64_t> predictions(4);
  ASSERT_TRUE(model->Remember(View(batch)).ok());
  const auto result = model->Evaluate(View(batch), absl::MakeSpan(predictions));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(predictions, batch.labels);
  EXPECT_LT(result->loss, 1e-3);
}

TEST(SelfSupervised, AStepNeedsAllViews) {
  const ModelSpec spec = LabelFree(TinyMlp(), Method::kContrastive);
  const auto model = MakeModel(spec);
  EXPECT_THAT(std::string(model->Step(View(TinyBatch(spec, 4))).status().message()), HasSubstr("128"));
}

// Whatever the backbone: the names of its reference but for the classifier, and a gradient everywhere.
class LabelFreeZoo : public testing::TestWithParam<ModelKind> {};

INSTANTIATE_TEST_SUITE_P(, LabelFreeZoo,
                         testing::Values(ModelKind::kCnn, ModelKind::kResnet18, ModelKind::kEfficientnetB0,
                                         ModelKind::kVitTiny, ModelKind::kTextureCnn2),
                         [](const testing::TestParamInfo<ModelKind>& info) { return KindName(info.param); });

TEST_P(LabelFreeZoo, ClassifierGivesWayToAHead) {
  ModelSpec with;
  with.kind = GetParam();
  with.classes = 3;
  with.hidden = {8};
  with.filters = {2, 3};
  with.height = with.width = 16;
  with.patch_size = 8;
  with.dropout = GetParam() == ModelKind::kEfficientnetB0 ? 0.2 : 0;
  with.checkpointing = GetParam() == ModelKind::kVitTiny;
  const ModelSpec spec = LabelFree(with, Method::kSelfDistillation);
  const auto classifying = MakeModel(with), model = MakeModel(spec);
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const TensorInfo& tensor : classifying->tensors()) shapes[tensor.name] = tensor.shape;
  size_t head = 0, shared = 0;
  for (const TensorInfo& tensor : model->tensors()) {
    const bool own = tensor.name.starts_with("projection.") || tensor.name.starts_with("prediction.");
    (own ? head : shared) += 1;
    if (!own) {
      EXPECT_EQ(shapes[tensor.name], tensor.shape) << tensor.name;
    }
  }
  EXPECT_EQ(head, 16u);
  EXPECT_EQ(shared + 2, shapes.size());
  ASSERT_TRUE(model->MoveTeacher().ok());
  const auto result = model->Step(View(Views(spec, 3)));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->loss > 0 && result->loss < 8) << result->loss;
  const absl::Span<const float> push = model->push().first(model->trained_elements());
  EXPECT_TRUE(std::all_of(push.begin(), push.end(), [](float value) { return std::isfinite(value); }));
  EXPECT_TRUE(std::any_of(push.begin(), push.begin() + 8, [](float value) { return value != 0; }));
  const images::Batch batch = TinyBatch(spec, 6);
  std::vector<int64_t> predictions(6);
  ASSERT_TRUE(model->Remember(View(batch)).ok());
  EXPECT_TRUE(model->Evaluate(View(batch), absl::MakeSpan(predictions)).ok());
}

// A part's images with all their views, as a batch of its own.
images::Batch PartOfBatch(const images::Batch& batch, size_t begin, size_t size) {
  const size_t images = batch.labels.size(), pixels = batch.images.size() / batch.views / images;
  images::Batch part;
  part.views = batch.views;
  part.labels.assign(batch.labels.begin() + static_cast<int64_t>(begin),
                     batch.labels.begin() + static_cast<int64_t>(begin + size));
  for (size_t view = 0; view < batch.views; ++view) {
    const auto from = batch.images.begin() + static_cast<int64_t>((view * images + begin) * pixels);
    part.images.insert(part.images.end(), from, from + static_cast<int64_t>(size * pixels));
  }
  return part;
}

// Each device compares the images of its own part with each other, and all have one teacher.
TEST_P(ViewLoss, OfSeveralDevicesIsTheMeanOverTheirParts) {
  for (const ModelSpec& spec : {spec_, LabelFree(TinyCnn(true), GetParam().method, GetParam().views)}) {
    SetComputeThreads(1);
    const auto group = LocalGroup::Create(spec, 1, {"cpu", "cpu"});
    ASSERT_TRUE(group.ok()) << group.status();
    const auto one = MakeModel(spec);
    const images::Batch batch = Views(spec, 5);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE((*group)->model().MoveTeacher().ok());
      ASSERT_TRUE(one->MoveTeacher().ok());
      Weights expected(one->elements());
      double loss = 0;
      for (const auto& [begin, size] : {std::pair<size_t, size_t>(0, 3), {3, 2}}) {
        const images::Batch part = PartOfBatch(batch, begin, size);
        const auto result = one->Step(ViewOf(part));
        ASSERT_TRUE(result.ok()) << result.status();
        const double share = static_cast<double>(size) / 5;
        loss += share * result->loss;
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += share * one->push()[i];
      }
      const auto result = (*group)->Step(ViewOf(batch));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->samples, 5u);
      EXPECT_NEAR(result->loss, loss, 1e-5);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR((*group)->model().push()[i], expected[i], 1e-5) << "step " << step << ", element " << i;
        one->parameters()[i] -= 0.5f * (*group)->model().push()[i];
        (*group)->model().parameters()[i] = one->parameters()[i];
      }
    }
  }
}

TEST(SelfSupervised, LossesAreExactInLowerPrecision) {
  for (const Method method : {Method::kContrastive, Method::kSelfDistillation}) {
    ModelSpec spec = LabelFree(TinyMlp(), method);
    const images::Batch batch = Views(spec, 6);
    const auto plain = MakeModel(spec);
    spec.precision = Precision::kBf16;
    const auto half = MakeModel(spec);
    ASSERT_TRUE(plain->MoveTeacher().ok());
    ASSERT_TRUE(half->MoveTeacher().ok());
    const double expected = plain->Step(View(batch))->loss;
    EXPECT_NEAR(half->Step(View(batch))->loss, expected, 0.02 * expected);
  }
}

}  // namespace
}  // namespace slackline::worker::self_supervised_test

// Lower precision compared with float32, and gradients of a scaled loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::precision_test {
namespace {

using ::testing::HasSubstr;

ModelSpec TinyVit() {
  return {
      .kind = ModelKind::kVitTiny, .hidden = {}, .filters = {}, .classes = 3, .height = 8, .width = 8, .patch_size = 4};
}

double Norm(absl::Span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// |a - b| / |b|.
double Distance(absl::Span<const float> a, absl::Span<const float> b) {
  std::vector<float> difference;
  for (size_t i = 0; i < b.size(); ++i) difference.push_back(a[i] - b[i]);
  return Norm(difference) / Norm(b);
}

std::vector<float> GradientOf(ModelSpec spec, Precision precision, const BatchView& batch) {
  spec.precision = precision;
  const auto model = MakeModel(spec);
  const auto result = model->Step(batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return Copy(model->push().first(model->trained_elements()));
}

TEST(ModelPrecision, GradientsInBf16AreNearThoseInFloat32) {
  for (const ModelSpec& spec : {TinyMlp(), TinyCnn(false), TinyCnn(true), TinyImagesForResnet(), TinyVit()}) {
    SCOPED_TRACE(KindName(spec.kind));
    const images::Batch batch = TinyBatch(spec, 16);
    const std::vector<float> exact = GradientOf(spec, Precision::kFloat32, View(batch));
    const std::vector<float> rough = GradientOf(spec, Precision::kBf16, View(batch));
    const double distance = Distance(rough, exact);
    EXPECT_GT(distance, 0) << "it was not computed in bf16";
    // Rounding grows from layer to layer where batch_norm has few values: PyTorch's own resnet is as far off here.
    EXPECT_LT(distance, spec.kind == ModelKind::kResnet18 ? 0.6 : 0.1);
  }
}

// Where images have shrunk to a pixel, most of a kernel sees nothing: its gradient is 0, and not what lay in memory.
TEST(ModelPrecision, WhatSeesOnlyPaddingHasNoGradient) {
  const ModelSpec spec = TinyImagesForResnet();
  const images::Batch batch = TinyBatch(spec, 16);
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> junk(8 << 20, 1e30f);
    ModelSpec rough = spec;
    rough.precision = Precision::kBf16;
    const auto model = MakeModel(rough);
    ASSERT_TRUE(model->Step(View(batch)).ok());
    const absl::Span<float> kernels = Find(*model, model->push(), "layer3.0.conv1.weight");
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (i % 9 == 4) continue;
      ASSERT_EQ(kernels[i], 0) << "element " << i;
    }
    EXPECT_GT(Norm(kernels), 0);
    EXPECT_LT(Norm(kernels), 100);
    EXPECT_EQ(junk.back(), 1e30f);
  }
}

TEST(ModelPrecision, TheLossFallsInBf16AsInFloat32) {
  double last[2] = {};
  for (const Precision precision : {Precision::kFloat32, Precision::kBf16}) {
    ModelSpec spec = TinyMlp();
    spec.precision = precision;
    const auto model = MakeModel(spec);
    const images::Batch batch = TinyBatch(spec, 24);
    const double first = model->Step(View(batch))->loss;
    for (int step = 0; step < 200; ++step) {
      const auto result = model->Step(View(batch));
      ASSERT_TRUE(result.ok()) << result.status();
      last[precision == Precision::kBf16] = result->loss;
      for (size_t i = 0; i < model->trained_elements(); ++i) model->parameters()[i] -= 0.2f * model->push()[i];
    }
    EXPECT_LT(last[precision == Precision::kBf16], 0.5 * first);
  }
  EXPECT_NEAR(last[1], last[0], 0.1);
}

TEST(ModelPrecision, EvaluationsAreInFloat32) {
  ModelSpec spec = TinyCnn(false);
  const images::Batch batch = TinyBatch(spec, 8);
  std::vector<int64_t> predictions(8);
  const double exact = MakeModel(spec)->Evaluate(View(batch), absl::MakeSpan(predictions))->loss;
  spec.precision = Precision::kBf16;
  EXPECT_EQ(MakeModel(spec)->Evaluate(View(batch), absl::MakeSpan(predictions))->loss, exact);
}

TEST(ModelPrecision, AScaledLossGivesTheSameGradient) {
  const ModelSpec spec = TinyCnn(true);
  const images::Batch batch = TinyBatch(spec, 8);
  BatchView scaled = View(batch);
  scaled.loss_scale = 1024;
  const auto plain = MakeModel(spec), other = MakeModel(spec);
  const auto expected = plain->Step(View(batch)), result = other->Step(scaled);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, expected->loss);
  EXPECT_LT(Distance(other->push(), plain->push()), 1e-6) << "statistics of batch_norm, too";
  // The next step may be scaled otherwise.
  ASSERT_TRUE(other->Step(View(batch)).ok());
  EXPECT_EQ(Copy(other->push()), Copy(plain->push()));
}

TEST(ModelPrecision, HalfPrecisionOnACpuComputesOrSaysWhatIsAllowed) {
  ModelSpec spec = TinyCnn(false);
  spec.precision = Precision::kFp16;
  SetComputeThreads(1);
  const auto model = Model::Create(spec, 1);
  if (!model.ok()) {
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(model.status().message(), HasSubstr("worker.precision: found fp16 on a cpu"));
    EXPECT_THAT(model.status().message(), HasSubstr("allowed are float32 and bf16, and fp16 on GPUs"));
    return;
  }
  const images::Batch batch = TinyBatch(spec, 16);
  BatchView scaled = View(batch);
  scaled.loss_scale = 1024;
  ASSERT_TRUE((*model)->Step(scaled).ok());
  const std::vector<float> exact = GradientOf(spec, Precision::kFloat32, View(batch));
  EXPECT_LT(Distance((*model)->push().first(exact.size()), exact), 0.05);
}

TEST(ModelPrecision, AnOverflowShowsInTheGradient) {
  ModelSpec spec = TinyCnn(false);
  spec.precision = Precision::kFp16;
  SetComputeThreads(1);
  const auto model = Model::Create(spec, 1);
  if (!model.ok()) GTEST_SKIP() << model.status();
  const images::Batch batch = TinyBatch(spec, 16);
  BatchView scaled = View(batch);
  scaled.loss_scale = 1e9f;
  ASSERT_TRUE((*model)->Step(scaled).ok());
  EXPECT_FALSE(std::isfinite(Norm((*model)->push().first((*model)->trained_elements()))));
}

TEST(ModelMemoryFormat, BothGiveTheSameGradientUpToRounding) {
  for (const uint32_t channels : {1u, 3u}) {
    ModelSpec spec = TinyCnn(true);
    spec.channels = channels;
    const images::Batch batch = TinyBatch(spec, 8);
    const auto last = MakeModel(spec);
    spec.channels_last = false;
    const auto first = MakeModel(spec);
    ASSERT_TRUE(last->Step(View(batch)).ok() && first->Step(View(batch)).ok());
    EXPECT_LT(Distance(first->push(), last->push()), 1e-5) << channels;
  }
}

}  // namespace
}  // namespace slackline::worker::precision_test

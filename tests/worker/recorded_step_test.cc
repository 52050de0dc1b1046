// Steps that are recorded and replayed, on a CPU. A fake recorder replays a step by running it again, as it was given
// the first time.
#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#define SLACKLINE_LIBTORCH_GRAPHS 1
#endif
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/model_fixture.h"
#include "worker/model/torch/graph_recorder.h"
#include "worker/model/torch/recorded_step.h"

namespace slackline::worker::recorded_step_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Counts {
  int recorded = 0, replayed = 0, on_stream_calls = 0;
  bool on_stream = false;
};

class PlayedRecorder final : public StepRecorder {
 public:
  explicit PlayedRecorder(Counts& counts) : counts_(counts) {}

  void OnStream(const std::function<void()>& body) override {
    counts_.on_stream = true;
    ++counts_.on_stream_calls;
    body();
    counts_.on_stream = false;
  }
  void* stream() const override { return &counts_; }
  void Record(const std::function<void()>& work) override {
    EXPECT_TRUE(counts_.on_stream);
    ++counts_.recorded;
    kept_ = work;
  }
  void Replay() override {
    EXPECT_TRUE(counts_.on_stream);
    ++counts_.replayed;
    kept_();
  }

 private:
  Counts& counts_;
  std::function<void()> kept_;
};

std::unique_ptr<Model> Recorded(const ModelSpec& spec, Counts& counts) {
  std::unique_ptr<Model> model = MakeModel(spec);
  EXPECT_TRUE(model->RecordSteps(std::make_unique<PlayedRecorder>(counts)).ok());
  return model;
}

// Other images in each step.
images::Batch BatchOf(const ModelSpec& spec, size_t size, int step) {
  images::Batch batch = TinyBatch(spec, size);
  for (float& pixel : batch.images)
    pixel = pixel * (1 + 0.1f * static_cast<float>(step)) - 0.05f * static_cast<float>(step);
  for (int64_t& label : batch.labels) label = (label + step) % spec.classes;
  return batch;
}

// The same step of both, with the same result; then weights move along the gradient.
void ExpectSameStep(Model& plain, Model& recorded, const BatchView& batch) {
  std::vector<uint64_t> ready;
  const absl::StatusOr<StepResult> wanted = plain.Step(batch);
  const absl::StatusOr<StepResult> got = recorded.Step(batch, [&](uint64_t from) { ready.push_back(from); });
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->loss, wanted->loss);
  EXPECT_EQ(got->correct, wanted->correct);
  EXPECT_EQ(got->samples, wanted->samples);
  ASSERT_FALSE(ready.empty());
  EXPECT_EQ(ready.back(), 0u);
  EXPECT_EQ(Copy(recorded.push()), Copy(plain.push()));
  for (Model* model : {&plain, &recorded}) {
    for (uint64_t i = 0; i < model->trained_elements(); ++i) model->parameters()[i] -= 0.1f * model->push()[i];
    for (uint64_t i = model->trained_elements(); i < model->elements(); ++i) model->parameters()[i] = model->push()[i];
  }
}

class RecordedModel : public testing::TestWithParam<ModelSpec> {};

TEST_P(RecordedModel, StepsAsOneThatIsNot) {
  Counts counts;
  const auto plain = MakeModel(GetParam()), recorded = Recorded(GetParam(), counts);
  EXPECT_EQ(recorded->stream(), &counts);
  for (int step = 0; step < 7; ++step) ExpectSameStep(*plain, *recorded, ViewOf(BatchOf(GetParam(), 6, step)));
  EXPECT_EQ(counts.recorded, 1);
  EXPECT_EQ(counts.replayed, 4);  // the first of which is the one that was recorded
}

ModelSpec Half() {
  ModelSpec spec = TinyCnn(false);
  spec.precision = Precision::kBf16;
  return spec;
}

ModelSpec Weighted() {
  ModelSpec spec = TinyMlp();
  spec.class_weights = {1, 2, 0.5};
  spec.label_smoothing = 0.1;
  return spec;
}

ModelSpec TinyVit() {
  return {
      .kind = ModelKind::kVitTiny, .hidden = {}, .filters = {}, .classes = 3, .height = 8, .width = 8, .patch_size = 4};
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecordedModel,
                         testing::Values(TinyMlp(), TinyCnn(true), TinyImagesForResnet(), TinyVit(), Half(),
                                         Weighted()));

TEST(RecordedStep, SmallerBatchesGoByPlainlyAndLargerOnesAreRecordedAnew) {
  const ModelSpec spec = TinyCnn(true);
  Counts counts;
  const auto plain = MakeModel(spec), recorded = Recorded(spec, counts);
  std::vector<int> recordings;
  for (const size_t size : {6, 6, 2, 6, 6, 6, 2, 6, 8, 8, 6, 8, 8, 8, 2, 6}) {
    ExpectSameStep(*plain, *recorded, ViewOf(BatchOf(spec, size, static_cast<int>(recordings.size()))));
    recordings.push_back(counts.recorded);
  }
  EXPECT_THAT(recordings, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_EQ(counts.replayed, 6);
}

TEST(RecordedStep, AnotherScaleOfTheLossOrOtherMemoryIsAnotherRecording) {
  const ModelSpec spec = TinyMlp();
  Counts counts;
  const auto plain = MakeModel(spec), recorded = Recorded(spec, counts);
  auto step = [&, number = 0](float scale) mutable {
    const images::Batch batch = BatchOf(spec, 6, number++);
    BatchView view = ViewOf(batch);
    view.loss_scale = scale;
    ExpectSameStep(*plain, *recorded, view);
  };
  for (const float scale : {1.f, 1.f, 1.f, 1.f, 1.f}) step(scale);
  EXPECT_EQ(counts.recorded, 1);
  step(1024);
  step(1024);
  EXPECT_EQ(counts.recorded, 2);
  const auto model = MakeModel(spec);
  recorded->UsePush(model->push());
  step(1024);
  EXPECT_EQ(counts.recorded, 3);
}

TEST(RecordedStep, TargetsOfMixedImagesAreInputsToo) {
  const ModelSpec spec = TinyMlp();
  Counts counts;
  const auto plain = MakeModel(spec), recorded = Recorded(spec, counts);
  for (int step = 0; step < 6; ++step) {
    images::Batch batch = BatchOf(spec, 6, step);
    batch.other_labels = BatchOf(spec, 6, step + 1).labels;
    batch.share = 1 - 0.1f * static_cast<float>(step);
    ExpectSameStep(*plain, *recorded, ViewOf(batch));
  }
  EXPECT_EQ(counts.recorded, 1);
}

TEST(RecordedStep, EvaluationsAreOnTheStreamThatWeightsComeOn) {
  const ModelSpec spec = TinyMlp();
  Counts counts;
  const auto plain = MakeModel(spec), recorded = Recorded(spec, counts);
  const images::Batch batch = BatchOf(spec, 6, 1);
  std::vector<int64_t> wanted(6), got(6);
  const auto expected = plain->Evaluate(ViewOf(batch), absl::MakeSpan(wanted));
  const auto evaluated = recorded->Evaluate(ViewOf(batch), absl::MakeSpan(got));
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(evaluated->loss, expected->loss);
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(counts.on_stream_calls, 1);
}

TEST(RecordedStep, WhatDependsOnMoreThanItsBatchIsRefused) {
  const auto refusal = [](const ModelSpec& spec) {
    Counts counts;
    return std::string(MakeModel(spec)->RecordSteps(std::make_unique<PlayedRecorder>(counts)).message());
  };
  ModelSpec spec = TinyVit();
  spec.dropout = 0.1;
  EXPECT_THAT(refusal(spec), HasSubstr("dropout"));
  spec = TinyVit();
  spec.checkpointing = true;
  EXPECT_THAT(refusal(spec), HasSubstr("model.checkpointing"));
}

// --- LibTorch's graphs --------------------------------------------------------------------------------------------

TEST(GraphRecorder, IsRefusedWhereLibTorchHasNone) {
  const auto none = MakeGraphRecorder(at::kCPU);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("has no graphs for cpu devices; allowed is false"));
}

#ifdef SLACKLINE_LIBTORCH_GRAPHS
std::vector<std::string>& Calls() {
  static auto* const calls = new std::vector<std::string>();
  return *calls;
}

struct NotedGraph final : public at::GraphImplInterface {
  explicit NotedGraph(const at::GraphImplArgs&) { Calls().push_back("made"); }
  ~NotedGraph() override { Calls().push_back("gone"); }
  void capture_begin(at::MempoolId_t, at::GraphCaptureMode mode) override {
    Calls().push_back(mode == at::GraphCaptureMode::ThreadLocal ? "begin" : "begin with another mode");
  }
  void capture_end() override { Calls().push_back("end"); }
  void instantiate() override { Calls().push_back("instantiate"); }
  void replay() override { Calls().push_back("replay"); }
  void reset() override { Calls().push_back("reset"); }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}
};

// A device of the test's own, whose streams are numbers.
struct NotedStreams final : public c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1> {
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 7);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &streams[stream.id()]; }

  static inline c10::StreamId current = 0;
  static inline char streams[8] = {};
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, NotedStreams)

TEST(GraphRecorder, BeginsEndsAndReplaysOneCaptureAtATimeOnAStreamOfItsOwn) {
  const at::Device device(at::kPrivateUse1, 0);
  at::GraphImplRegistry()->Register(c10::DeviceTypeName(device.type(), false),
                                    [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
                                      return std::make_unique<NotedGraph>(args);
                                    });
  const auto recorder = MakeGraphRecorder(device);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  EXPECT_EQ((*recorder)->stream(), &NotedStreams::streams[7]);
  (*recorder)->OnStream([&] {
    EXPECT_EQ(NotedStreams::current, 7);
    (*recorder)->Record([] { Calls().push_back("work"); });
    (*recorder)->Replay();
  });
  EXPECT_EQ(NotedStreams::current, 0);
  EXPECT_THAT(Calls(), ElementsAre("made", "begin", "work", "end", "replay"));
  Calls().clear();
  (*recorder)->Record([] { Calls().push_back("other work"); });
  EXPECT_THAT(Calls(), ElementsAre("gone", "made", "begin", "other work", "end"));
  Calls().clear();
  EXPECT_THROW((*recorder)->Record([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_THAT(Calls(), ElementsAre("gone", "made", "begin", "end", "gone"));
}
#endif

}  // namespace
}  // namespace slackline::worker::recorded_step_test

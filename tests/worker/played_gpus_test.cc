// Groups on fake GPUs, which run on a CPU: all of worker/cuda/ except the kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/worker/model_fixture.h"
#include "tests/worker/played/gpus.h"
#include "worker/cuda/gpus.h"

namespace slackline::worker::gpu::played_gpus_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Device> PlayedGpus(size_t count) {
  std::vector<Device> devices;
  for (uint32_t i = 0; i < count; ++i) devices.push_back({.kind = Device::Kind::kCuda, .index = i});
  return devices;
}

// Several pieces of parameters, and more buckets.
ModelSpec LargeMlp() {
  return {.kind = ModelKind::kMlp, .hidden = {2100, 2000}, .filters = {}, .classes = 10, .height = 4, .width = 8};
}

std::unique_ptr<LocalGroup> MakePlayed(const ModelSpec& spec, size_t gpus, const GroupOptions& options = {}) {
  SetComputeThreads(1);
  played::TakeFaults();
  auto group = MakeGroup(spec, 1, PlayedGpus(gpus), options);
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

std::unique_ptr<LocalGroup> OnCpus(const ModelSpec& spec, size_t count) {
  auto group = LocalGroup::Create(spec, 1, std::vector<std::string>(count, "cpu"));
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

// Two memories each for parameters and pushes, in turns, as the trainer has them.
class Turns {
 public:
  explicit Turns(LocalGroup& group) : group_(group), elements_(group.model().elements()) {
    for (auto* memory : {&parameters_, &pushes_}) memory->assign(2, std::vector<float>(elements_ + kLine));
  }

  void Take(absl::Span<const float> weights) {
    turn_ = 1 - turn_;
    std::copy(weights.begin(), weights.end(), Aligned(parameters_[turn_]).begin());
    group_.model().UseParameters(Aligned(parameters_[turn_]));
    group_.model().UsePush(Aligned(pushes_[turn_]));
  }

 private:
  static constexpr size_t kLine = 64 / sizeof(float);

  absl::Span<float> Aligned(std::vector<float>& memory) const {
    void* begin = memory.data();
    size_t bytes = memory.size() * sizeof(float);
    return {static_cast<float*>(std::align(64, elements_ * sizeof(float), begin, bytes)), elements_};
  }

  LocalGroup& group_;
  const size_t elements_;
  size_t turn_ = 0;
  std::vector<std::vector<float>> parameters_, pushes_;
};

void ExpectSame(const absl::StatusOr<StepResult>& got, const absl::StatusOr<StepResult>& wanted, LocalGroup& gpus,
                LocalGroup& cpus, float error = 1e-5f) {
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  EXPECT_EQ(got->samples, wanted->samples);
  EXPECT_EQ(got->correct, wanted->correct);
  EXPECT_NEAR(got->loss, wanted->loss, 1e-5);
  for (size_t i = 0; i < gpus.model().elements(); ++i) {
    const float expected = cpus.model().push()[i];
    ASSERT_NEAR(gpus.model().push()[i], expected, error * std::max(1.0f, std::abs(expected))) << "element " << i;
  }
}

void Descend(LocalGroup& cpus) {
  const absl::Span<float> weights = cpus.model().parameters(), push = cpus.model().push();
  const uint64_t trained = cpus.model().trained_elements();
  for (size_t i = 0; i < trained; ++i) weights[i] -= 0.05f * push[i];
  std::copy(push.begin() + static_cast<int64_t>(trained), push.end(), weights.begin() + static_cast<int64_t>(trained));
}

class GroupOfPlayedGpus : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(, GroupOfPlayedGpus, ::testing::Values(1, 2, 3), ::testing::PrintToStringParamName());

TEST_P(GroupOfPlayedGpus, StepsAsOneOfCpus) {
  for (const ModelSpec& spec : {TinyMlp(), TinyCnn(true), LargeMlp()}) {
    const auto gpus = MakePlayed(spec, GetParam()), cpus = OnCpus(spec, GetParam());
    EXPECT_EQ(Copy(gpus->model().parameters()), Copy(cpus->model().parameters()));
    Turns turns(*gpus);
    images::Batch batch = TinyBatch(spec, 7);
    for (int step = 0; step < 4; ++step) {
      turns.Take(cpus->model().parameters());
      std::vector<uint64_t> ready;
      const auto got = gpus->Step(ViewOf(batch), [&](uint64_t from) {
        // What is ready is there.
        if (ready.empty() || from < ready.back()) ready.push_back(from);
      });
      ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus);
      ASSERT_FALSE(ready.empty());
      EXPECT_EQ(ready.back(), 0u);
      std::vector<int64_t> found(7), wanted(7);
      const auto evaluated = gpus->model().Evaluate(View(batch), absl::MakeSpan(found));
      ASSERT_TRUE(evaluated.ok()) << evaluated.status();
      EXPECT_NEAR(evaluated->loss, cpus->model().Evaluate(View(batch), absl::MakeSpan(wanted))->loss, 1e-5);
      EXPECT_EQ(found, wanted);
      Descend(*cpus);
      batch.labels.front() = step % spec.classes;
    }
    EXPECT_THAT(played::TakeFaults(), IsEmpty());
  }
}

// Parameters that come while the step is under way, and not before somebody waits for them.
class Late final : public Arrival {
 public:
  Late(absl::Span<const float> weights, absl::Span<float> to) : weights_(weights), to_(to) {
    std::fill(to.begin(), to.end(), -7.0f);
  }
  absl::Status AwaitUpTo(uint64_t end) override {
    for (; there_ < end; ++there_) to_[there_] = weights_[there_];
    return absl::OkStatus();
  }
  absl::Status AwaitAll() override { return AwaitUpTo(weights_.size()); }

 private:
  const absl::Span<const float> weights_;
  const absl::Span<float> to_;
  uint64_t there_ = 0;
};

TEST_P(GroupOfPlayedGpus, BeginsWhileParametersArrive) {
  const auto gpus = MakePlayed(LargeMlp(), GetParam()), cpus = OnCpus(LargeMlp(), GetParam());
  ASSERT_TRUE(gpus->reads_as_they_arrive());
  const images::Batch batch = TinyBatch(LargeMlp(), 6);
  Turns turns(*gpus);
  for (int step = 0; step < 3; ++step) {
    turns.Take(cpus->model().parameters());
    Late late(cpus->model().parameters(), gpus->model().parameters());
    BatchView view = ViewOf(batch);
    view.arrival = &late;
    const auto got = gpus->Step(view);
    ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus);
    Descend(*cpus);
  }
}

class Never final : public Arrival {
 public:
  absl::Status AwaitUpTo(uint64_t) override { return absl::UnavailableError("ps-0 is gone"); }
  absl::Status AwaitAll() override { return AwaitUpTo(0); }
};

TEST_P(GroupOfPlayedGpus, ParametersThatDoNotComeEndTheStepAndNotTheGroup) {
  const auto gpus = MakePlayed(LargeMlp(), GetParam()), cpus = OnCpus(LargeMlp(), GetParam());
  const images::Batch batch = TinyBatch(LargeMlp(), 6);
  Never never;
  BatchView view = ViewOf(batch);
  view.arrival = &never;
  EXPECT_EQ(gpus->Step(view).status(), absl::UnavailableError("ps-0 is gone"));
  EXPECT_EQ(gpus->given_up(), absl::OkStatus());
  Turns turns(*gpus);
  turns.Take(cpus->model().parameters());
  const auto got = gpus->Step(ViewOf(batch));
  ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus);
}

TEST_P(GroupOfPlayedGpus, DevicesWithoutSamplesAddNothing) {
  const auto gpus = MakePlayed(TinyCnn(false), GetParam()), cpus = OnCpus(TinyCnn(false), 1);
  Turns turns(*gpus);
  for (const size_t samples : {5, 1, 2}) {
    turns.Take(cpus->model().parameters());
    const images::Batch batch = TinyBatch(TinyCnn(false), samples);
    const auto got = gpus->Step(ViewOf(batch));
    ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus);
  }
}

TEST_P(GroupOfPlayedGpus, LearnsWithoutLabelsAsCpusDo) {
  using Method = SelfSupervised::Method;
  constexpr float kError = 1e-4f;
  for (const Method method : {Method::kContrastive, Method::kSelfDistillation}) {
    ModelSpec spec = TinyCnn(true);
    spec.self_supervised = {.method = method, .temperature = 0.5, .hidden = 7, .outputs = 4, .teacher_momentum = 0.75};
    const auto gpus = MakePlayed(spec, GetParam()), cpus = OnCpus(spec, GetParam());
    Turns turns(*gpus);
    images::Batch batch = TinyBatch(spec, 2 * 6);
    batch.labels.resize(6);
    batch.views = 2;
    const images::Batch known = TinyBatch(spec, 8);
    for (int step = 0; step < 3; ++step) {
      turns.Take(cpus->model().parameters());
      for (LocalGroup* const group : {gpus.get(), cpus.get()}) ASSERT_TRUE(group->model().MoveTeacher().ok());
      const auto got = gpus->Step(ViewOf(batch));
      ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus, kError);
      std::vector<int64_t> found(8), wanted(8);
      for (LocalGroup* const group : {gpus.get(), cpus.get()}) {
        group->model().Forget();
        ASSERT_TRUE(group->model().Remember(View(known)).ok());
      }
      const auto evaluated = gpus->model().Evaluate(View(known), absl::MakeSpan(found));
      ASSERT_TRUE(evaluated.ok()) << evaluated.status();
      EXPECT_NEAR(evaluated->loss, cpus->model().Evaluate(View(known), absl::MakeSpan(wanted))->loss, 1e-5);
      EXPECT_EQ(found, wanted);
      Descend(*cpus);
    }
    // A teacher that servers kept the average of.
    if (gpus->model().teacher().empty()) continue;
    const std::vector<float> average(cpus->model().elements(), 0.1f);
    for (LocalGroup* const group : {gpus.get(), cpus.get()}) {
      ASSERT_TRUE(group->model().SetTeacher(average).ok());
      ASSERT_TRUE(group->model().MoveTeacher().ok());
    }
    turns.Take(cpus->model().parameters());
    const auto got = gpus->Step(ViewOf(batch));
    ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus, kError);
    EXPECT_THAT(played::TakeFaults(), IsEmpty());
  }
}

TEST_P(GroupOfPlayedGpus, AWrongLabelEndsTheStepAndNotTheGroup) {
  const auto gpus = MakePlayed(TinyMlp(), GetParam()), cpus = OnCpus(TinyMlp(), 1);
  images::Batch batch = TinyBatch(TinyMlp(), 8);
  const int64_t right = std::exchange(batch.labels.back(), 77);
  EXPECT_EQ(gpus->Step(View(batch)).status().code(), absl::StatusCode::kInvalidArgument);
  batch.labels.back() = right;
  const auto got = gpus->Step(View(batch));
  ExpectSame(got, cpus->Step(View(batch)), *gpus, *cpus);
}

TEST_P(GroupOfPlayedGpus, ComputesInHalfPrecision) {
  ModelSpec spec = LargeMlp();
  spec.precision = Precision::kBf16;
  const auto gpus = MakePlayed(spec, GetParam()), cpus = OnCpus(spec, GetParam());
  const images::Batch batch = TinyBatch(spec, 6);
  BatchView view = ViewOf(batch);
  view.loss_scale = 256;
  const auto got = gpus->Step(view), wanted = cpus->Step(ViewOf(batch));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  EXPECT_NEAR(got->loss, wanted->loss, 0.02);
  for (size_t i = 0; i < gpus->model().elements(); i += 1001) {
    ASSERT_NEAR(gpus->model().push()[i], cpus->model().push()[i], 0.01) << "element " << i;
  }
}

struct Broken {
  const char* what;
  size_t times;
};

// Whatever fails in whatever place: the step ends in time, with a message that names it, and so does the group.
TEST_P(GroupOfPlayedGpus, FailuresEndTheGroupInTimeAndAreNamed) {
  GroupOptions options;
  options.timeouts.stall = absl::Seconds(1);
  if (GetParam() > 2) GTEST_SKIP() << "as two";
  const images::Batch batch = TinyBatch(LargeMlp(), 6);
  for (const auto& [what, times] :
       {Broken{"cudaMemcpyAsync", 1}, Broken{"cudaMemcpyAsync", 3}, Broken{"cudaMemcpyAsync", 6},
        Broken{"cudaEventRecord", 1}, Broken{"cudaEventRecord", 9}, Broken{"cudaStreamWaitEvent", 4},
        Broken{"cudaSetDevice", 1}, Broken{"cudaLaunchHostFunc", 2}, Broken{"ncclReduce", 1}, Broken{"ncclReduce", 4},
        Broken{"ncclBroadcast", 2}}) {
    if (GetParam() == 1 && std::string(what).starts_with("nccl")) continue;
    SCOPED_TRACE(testing::Message() << what << " " << times);
    const auto gpus = MakePlayed(LargeMlp(), GetParam(), options);
    played::FailOn(what, times);
    const absl::Status status = gpus->Step(View(batch)).status();
    played::FailOn("", 0);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:")) << status;
    EXPECT_EQ(gpus->given_up(), status);
    EXPECT_EQ(gpus->Step(View(batch)).status(), status);
  }
}

TEST(PlayedGpuStages, StepAsOneOnCpus) {
  GroupOptions options;
  options.stages = 3;
  options.micro_batches = 4;
  const auto gpus = MakePlayed(LargeMlp(), 3, options), cpus = OnCpus(LargeMlp(), 1);
  const images::Batch batch = TinyBatch(LargeMlp(), 6);
  Turns turns(*gpus);
  for (int step = 0; step < 3; ++step) {
    turns.Take(cpus->model().parameters());
    const auto got = gpus->Step(ViewOf(batch));
    ExpectSame(got, cpus->Step(ViewOf(batch)), *gpus, *cpus);
    EXPECT_EQ(played::CopiesUnderWay(), 0u);
    Descend(*cpus);
  }
}

}  // namespace
}  // namespace slackline::worker::gpu::played_gpus_test

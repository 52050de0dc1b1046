// Stages of a network on fake GPUs, which run on a CPU.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model_fixture.h"
#include "tests/worker/played/gpus.h"
#include "tests/worker/played/torch.h"
#include "worker/group/stage_group.h"
#include "worker/model/torch/staged_network.h"

namespace slackline::worker::staged_gpus_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// That what this test rests on finds what it is to find.
class PlayedGpus : public ::testing::Test {
 protected:
  PlayedGpus() { played::TakeFaults(); }

  const at::Device device_ = played::Gpu(0);
  const c10::Stream one_ = c10::impl::VirtualGuardImpl(device_.type()).getNewStream(device_);
  const c10::Stream two_ = c10::impl::VirtualGuardImpl(device_.type()).getNewStream(device_);
};

TEST_F(PlayedGpus, ComputeAsTheCpu) {
  const c10::StreamGuard guard(one_);
  const at::Tensor a = at::arange(6, at::kFloat).reshape({2, 3});
  const at::Tensor there = a.to(device_);
  EXPECT_TRUE(at::mm(there, there.t()).add_(1).to(at::kCPU).equal(at::mm(a, a.t()).add_(1)));
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  EXPECT_EQ(played::CopiesUnderWay(), 0u);
}

TEST_F(PlayedGpus, FindWhatNothingOrders) {
  at::Tensor x;
  {
    const c10::StreamGuard guard(one_);
    x = at::ones({4}, device_);
  }
  {
    const c10::StreamGuard guard(two_);
    const at::Tensor y = x + 1;
  }
  EXPECT_THAT(played::TakeFaults(), Contains(HasSubstr("aten::add reads on stream")));
  c10::Event event(device_.type());
  event.record(one_);
  event.block(two_);
  {
    const c10::StreamGuard guard(two_);
    const at::Tensor y = x + 1;
  }
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  {
    const c10::StreamGuard guard(one_);
    x.add_(1);
  }
  EXPECT_THAT(played::TakeFaults(), Contains(HasSubstr("aten::add writes on stream")));
}

TEST_F(PlayedGpus, FindMemoryThatIsGivenBackTooEarly) {
  for (const bool kept : {false, true}) {
    at::Tensor x;
    {
      const c10::StreamGuard guard(one_);
      x = at::ones({4}, device_);
    }
    c10::Event event(device_.type());
    event.record(one_);
    event.block(two_);
    {
      const c10::StreamGuard guard(two_);
      const at::Tensor y = x + 1;
    }
    const c10::impl::VirtualGuardImpl streams(device_.type());
    if (kept) streams.recordDataPtrOnStream(x.storage().data_ptr(), two_);
    x.reset();
    const std::vector<std::string> faults = played::TakeFaults();
    EXPECT_EQ(faults.size(), kept ? 0u : 1u);
    if (kept) continue;
    EXPECT_THAT(faults, Contains(HasSubstr("is given back while aten::add uses it")));
  }
}

TEST_F(PlayedGpus, CountCopiesThatTheHostHasNotWaitedFor) {
  const c10::StreamGuard guard(one_);
  at::Tensor from = at::ones({4});
  const at::Tensor of_pageable = from.to(device_, /*non_blocking=*/true);
  EXPECT_EQ(played::CopiesUnderWay(), 0u);
  played::Pin(from.const_data_ptr(), from.nbytes());
  const at::Tensor there = from.to(device_, /*non_blocking=*/true);
  EXPECT_EQ(played::CopiesUnderWay(), 1u);
  one_.synchronize();
  EXPECT_EQ(played::CopiesUnderWay(), 0u);
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  const at::Tensor again = from.to(device_, /*non_blocking=*/true);
  from.fill_(2);
  one_.synchronize();
  EXPECT_THAT(played::TakeFaults(), Contains(HasSubstr("the host has written memory")));
}

TEST_F(PlayedGpus, BringNothingToPinnedMemoryBeforeTheHostHasWaited) {
  const c10::StreamGuard guard(one_);
  at::Tensor to = at::zeros({4});
  played::Pin(to.const_data_ptr(), to.nbytes());
  to.copy_(at::ones({4}, device_), /*non_blocking=*/true);
  EXPECT_TRUE(to.equal(at::zeros({4})));
  one_.synchronize();
  EXPECT_TRUE(to.equal(at::ones({4})));
}

struct Cut {
  size_t stages;
  size_t micro_batches;
};

void PinIt(absl::Span<float> memory) { played::Pin(memory.data(), memory.size() * sizeof(float)); }

std::unique_ptr<StagedModel> OnGpus(const ModelSpec& spec, size_t stages, const StagedModel::Pin& pin = &PinIt) {
  SetComputeThreads(1);
  std::vector<at::Device> devices;
  for (size_t i = 0; i < stages; ++i) devices.push_back(played::Gpu(static_cast<int>(i)));
  auto model = MakeStagedNetwork(spec, 1, std::make_unique<StageStreams>(devices), pin);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

GroupOptions InParts(const Cut& cut) {
  GroupOptions options;
  options.stages = cut.stages;
  options.micro_batches = cut.micro_batches;
  return options;
}

ModelSpec DeepMlp() {
  return {.kind = ModelKind::kMlp, .hidden = {9, 7, 8}, .filters = {}, .classes = 3, .height = 4, .width = 4};
}

ModelSpec ShortVit() {
  return {
      .kind = ModelKind::kVitTiny, .hidden = {}, .filters = {}, .classes = 3, .height = 8, .width = 8, .patch_size = 4};
}

class StagesOnGpus : public ::testing::TestWithParam<Cut> {
 protected:
  StagesOnGpus() { played::TakeFaults(); }
};

INSTANTIATE_TEST_SUITE_P(, StagesOnGpus, ::testing::Values(Cut{2, 1}, Cut{2, 4}, Cut{3, 5}, Cut{4, 11}),
                         [](const ::testing::TestParamInfo<Cut>& info) {
                           return std::to_string(info.param.stages) + "StagesOn" +
                                  std::to_string(info.param.micro_batches);
                         });

// What a step is given, and whether all that the host gave the GPUs in it is done.
void ExpectSameStep(StageGroup& gpus, LocalGroup& cpus, const BatchView& batch) {
  const auto expected = cpus.Step(batch), result = gpus.Step(batch);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(played::CopiesUnderWay(), 0u);
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
  EXPECT_EQ(result->samples, expected->samples);
  EXPECT_EQ(result->correct, expected->correct);
  EXPECT_NEAR(result->loss, expected->loss, 1e-6);
  const absl::Span<float> wanted = cpus.model().push(), got = gpus.model().push();
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-6) << "element " << i;
}

TEST_P(StagesOnGpus, StepAsThoseOnCpus) {
  ModelSpec three_channels = TinyCnn(false);
  three_channels.channels = 3;
  for (const ModelSpec& spec : {DeepMlp(), TinyCnn(false), three_channels, ShortVit()}) {
    // Its steps take longest, and each has the same tasks.
    if (spec.kind == ModelKind::kVitTiny && GetParam().micro_batches > 4) continue;
    StageGroup gpus(OnGpus(spec, GetParam().stages), InParts(GetParam()));
    const auto cpus =
        LocalGroup::Create(spec, 1, std::vector<std::string>(GetParam().stages, "cpu"), InParts(GetParam()));
    ASSERT_TRUE(cpus.ok()) << cpus.status();
    images::Batch batch = TinyBatch(spec, 11);
    // As the trainer has it: gradients are still sent, and weights received, while the next step computes.
    std::vector<std::vector<float>> parameters(2, Copy((*cpus)->model().parameters()));
    std::vector<std::vector<float>> pushes(2, parameters.front());
    for (size_t step = 0; step < 4; ++step) {
      gpus.model().UseParameters(absl::MakeSpan(parameters[step % 2]));
      gpus.model().UsePush(absl::MakeSpan(pushes[step % 2]));
      ExpectSameStep(gpus, **cpus, ViewOf(batch));
      const absl::Span<float> weights = (*cpus)->model().parameters(), push = (*cpus)->model().push();
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.02f * push[i];
      parameters[(step + 1) % 2].assign(weights.begin(), weights.end());
      std::vector<int64_t> got(11), wanted(11);
      gpus.model().UseParameters(absl::MakeSpan(parameters[(step + 1) % 2]));
      const auto result = gpus.model().Evaluate(View(batch), absl::MakeSpan(got));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_NEAR(result->loss, (*cpus)->model().Evaluate(View(batch), absl::MakeSpan(wanted))->loss, 1e-6);
      EXPECT_EQ(got, wanted);
      batch.labels.front() = static_cast<int64_t>(step) % spec.classes;
    }
  }
  for (size_t i = 0; i < GetParam().stages; ++i) {
    EXPECT_EQ(played::OperatorsOnDefaultStream(static_cast<int>(i)), 0u) << "GPU " << i;
  }
  EXPECT_EQ(played::CopiesUnderWay(), 0u);
  EXPECT_THAT(played::TakeFaults(), IsEmpty());
}

TEST(StagedGpus, HaveOnlyWhatTheirStageNeeds) {
  const ModelSpec spec = ShortVit();
  for (int gpu = 0; gpu < 3; ++gpu) EXPECT_EQ(played::TakeBytes(gpu).now, 0u);
  const auto model = OnGpus(spec, 3);
  const size_t whole = model->elements() * sizeof(float);
  size_t all = 0;
  for (int gpu = 0; gpu < 3; ++gpu) {
    const size_t now = played::TakeBytes(gpu).now;
    all += now;
    EXPECT_LT(now, whole) << "GPU " << gpu;
  }
  // Parameters and gradients.
  EXPECT_EQ(all, 2 * whole);
}

TEST(StagedGpus, PinWhatTheyCopyFromAndTo) {
  std::vector<const float*> pinned;
  const auto model = OnGpus(DeepMlp(), 2, [&](absl::Span<float> memory) { pinned.push_back(memory.data()); });
  std::vector<float> parameters(model->elements()), push(model->elements());
  // Its own goes when another is lent.
  EXPECT_THAT(pinned, IsEmpty());
  model->UseParameters(absl::MakeSpan(parameters));
  model->UsePush(absl::MakeSpan(push));
  EXPECT_THAT(pinned, Contains(parameters.data()));
  EXPECT_THAT(pinned, Contains(push.data()));
}

TEST(StagedGpus, FailureLeavesNothingUnderWayAndTheNextStepIsWhole) {
  const Cut cut = {3, 4};
  const images::Batch batch = TinyBatch(DeepMlp(), 9);
  const auto cpus = LocalGroup::Create(DeepMlp(), 1, {"cpu", "cpu", "cpu"}, InParts(cut));
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  StageGroup gpus(OnGpus(DeepMlp(), 3), InParts(cut));
  for (const char* name : {"aten::addmm", "aten::argmax", "aten::div", "aten::threshold_backward"}) {
    for (const size_t count : {1, 3}) {
      played::FailOn(name, count);
      const absl::Status status = gpus.Step(ViewOf(batch)).status();
      EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << count;
      EXPECT_EQ(played::CopiesUnderWay(), 0u);
      ExpectSameStep(gpus, **cpus, ViewOf(batch));
    }
  }
}

}  // namespace
}  // namespace slackline::worker::staged_gpus_test

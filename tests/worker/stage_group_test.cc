// Stages of one model on threads of their own: the schedule, and fake stages that do what a test says, without
// LibTorch. staged_model_test.cc tests stages of a network.
#include "worker/group/stage_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "absl/synchronization/notification.h"
#include "worker/model/layout.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker::stage_group_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StagePlan, TheDearestStageIsAsCheapAsCanBe) {
  EXPECT_THAT(CutEvenly({1, 1, 1, 1}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(CutEvenly({5, 1, 1, 1}, 2), ElementsAre(0, 1, 4));
  EXPECT_THAT(CutEvenly({2, 1, 1, 2}, 3), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(CutEvenly({9, 1}, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(CutEvenly({3, 4}, 1), ElementsAre(0, 2));
}

TEST(StagePlan, WhatCannotBeCutIsRefused) {
  const ModelSpec mlp = {.kind = ModelKind::kMlp, .hidden = {8, 8}, .filters = {}};
  EXPECT_TRUE(CutModel(mlp, 3).ok());
  EXPECT_EQ(CutModel(mlp, 4).status().message(), "worker.stages is 4; the model has 3 layers, and a stage needs one");
  const ModelSpec resnet = {.kind = ModelKind::kResnet18, .hidden = {}, .filters = {}};
  EXPECT_THAT(std::string(CutModel(resnet, 2).status().message()), HasSubstr("resnet18 cannot be cut"));
  const ModelSpec normed = {.kind = ModelKind::kCnn, .hidden = {8}, .filters = {2, 3}, .batch_norm = true};
  EXPECT_THAT(std::string(CutModel(normed, 2).status().message()), HasSubstr("batch_norm cannot be cut"));
  ModelSpec frozen = mlp;
  frozen.groups = {{.match = "fc1.*", .frozen = true}};
  EXPECT_THAT(std::string(CutModel(frozen, 2).status().message()), HasSubstr("fc1.weight is one"));
  frozen.groups = {{.match = "fc1.*"}};
  EXPECT_TRUE(CutModel(frozen, 2).ok());
}

TEST(StagePlan, LayersHaveTheTensorsOfTheLayout) {
  const auto vit = [](ModelKind kind) {
    return ModelSpec{.kind = kind, .hidden = {}, .filters = {}, .height = 32, .width = 32, .patch_size = 4};
  };
  const ModelSpec mlp = {.kind = ModelKind::kMlp, .hidden = {8, 8}, .filters = {}};
  const ModelSpec cnn = {.kind = ModelKind::kCnn, .hidden = {8}, .filters = {2, 3}};
  ModelSpec normed = cnn;
  normed.batch_norm = true;
  for (const ModelSpec& spec : {mlp, cnn, vit(ModelKind::kVitTiny), vit(ModelKind::kVitBase)}) {
    size_t tensors = 0;
    for (const LayerPlan& layer : LayersOf(spec)) tensors += layer.tensors;
    EXPECT_EQ(tensors, MakeLayout(spec)->tensors.size()) << KindName(spec.kind);
  }
  EXPECT_EQ(WholeOf(normed).end, 4u);
  EXPECT_THAT(*CutModel(vit(ModelKind::kVitSmall), 2), ElementsAre(0, 7, 14));
}

TEST(StageTasks, AreOneForwardOneBackward) {
  const auto text = [](size_t stage, const LineShape& shape) {
    std::string tasks;
    for (const StageTask& task : TasksOf(stage, shape)) {
      tasks += (task.forward ? "f" : "b") + std::to_string(task.micro_batch) + " ";
    }
    return tasks;
  };
  EXPECT_EQ(text(0, {.stages = 3, .micro_batches = 4}), "f0 f1 f2 b0 f3 b1 b2 b3 ");
  EXPECT_EQ(text(1, {.stages = 3, .micro_batches = 4}), "f0 f1 b0 f2 b1 f3 b2 b3 ");
  EXPECT_EQ(text(2, {.stages = 3, .micro_batches = 4}), "f0 b0 f1 b1 f2 b2 f3 b3 ");
  EXPECT_EQ(text(0, {.stages = 3, .micro_batches = 1}), "f0 b0 ");
}

constexpr size_t kStages = 3;

// Counts what is done, and refuses what comes too early or twice.
class ScriptedStages : public StagedModel {
 public:
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return 2 * kStages; }
  uint64_t trained_elements() const override { return 2 * kStages; }
  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  absl::Span<float> push() override { return absl::MakeSpan(push_); }
  void UsePush(absl::Span<float>) override {}
  void UseParameters(absl::Span<float>) override {}
  using Model::Step;
  absl::StatusOr<StepResult> Step(const BatchView&, const Ready&) override { return StepResult{}; }
  absl::StatusOr<StepResult> Evaluate(const BatchView&, absl::Span<int64_t>) override { return StepResult{}; }

  size_t stages() const override { return kStages; }
  absl::Status BeginStep(const BatchView& batch, size_t micro_batches) override {
    samples_ = batch.labels.size();
    done_.assign(kStages, std::vector<int>(micro_batches, 0));
    return absl::OkStatus();
  }
  absl::Status Forward(size_t stage, size_t micro_batch) override {
    if (before) {
      if (absl::Status status = before(stage, true, micro_batch); !status.ok()) return status;
    }
    // What other threads have done is read without a lock: the thread sanitizer sees whether it may be.
    if (stage > 0 && done_[stage - 1][micro_batch] != 1) return absl::InternalError("forward came too early");
    return Next(stage, micro_batch, 1);
  }
  absl::Status Backward(size_t stage, size_t micro_batch) override {
    if (before) {
      if (absl::Status status = before(stage, false, micro_batch); !status.ok()) return status;
    }
    if (stage + 1 < kStages && done_[stage + 1][micro_batch] != 2)
      return absl::InternalError("backward came too early");
    return Next(stage, micro_batch, 2);
  }
  absl::StatusOr<uint64_t> EndStage(size_t stage) override {
    for (const int done : done_[stage]) {
      if (done != 2) return absl::InternalError("the stage ended too early");
    }
    push_[2 * stage] = push_[2 * stage + 1] = 1;
    ++left;
    return 2 * stage;
  }
  void DropStage(size_t) override { ++left; }
  StepResult result() const override { return {.samples = samples_, .loss = 1, .correct = 0}; }

  std::function<absl::Status(size_t stage, bool forward, size_t micro_batch)> before;
  std::atomic<size_t> left = 0;  // stages that have ended or were dropped, of all steps

 private:
  absl::Status Next(size_t stage, size_t micro_batch, int done) {
    if (++done_[stage][micro_batch] != done) return absl::InternalError("out of order");
    return absl::OkStatus();
  }

  const std::vector<TensorInfo> tensors_ = {{.name = "weight", .shape = {2 * kStages}}};
  std::vector<float> parameters_ = std::vector<float>(2 * kStages), push_ = std::vector<float>(2 * kStages);
  uint64_t samples_ = 0;
  std::vector<std::vector<int>> done_;
};

const std::vector<float> kStageImages(6, 0.0F);
const std::vector<int64_t> kStageLabels(6, 0);
const BatchView kStageBatch = {.images = kStageImages, .labels = kStageLabels};

GroupOptions WithStall(absl::Duration stall, size_t micro_batches) {
  GroupOptions options;
  options.timeouts.stall = stall;
  options.micro_batches = micro_batches;
  return options;
}

TEST(StageGroup, EachTaskComesOnceAndWhenItMay) {
  for (size_t micro_batches : {1, 2, 5, 6, 20}) {
    StageGroup group(std::make_unique<ScriptedStages>(), WithStall(absl::Seconds(120), micro_batches));
    for (int step = 0; step < 50; ++step) {
      std::vector<uint64_t> ready;
      const absl::StatusOr<StepResult> result = group.Step(kStageBatch, [&](uint64_t from) {
        EXPECT_EQ(group.model().push()[from], 1);
        ready.push_back(from);
      });
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->samples, 6u);
      EXPECT_EQ(ready.back(), 0u);
    }
  }
}

TEST(StageGroup, TheLastStageIsReadyWhileTheFirstComputes) {
  auto stages = std::make_unique<ScriptedStages>();
  absl::Notification last_is_ready;
  stages->before = [&](size_t stage, bool forward, size_t micro_batch) {
    const bool last_task = stage == 0 && !forward && micro_batch == 1;
    if (last_task && !last_is_ready.WaitForNotificationWithTimeout(absl::Seconds(60))) {
      return absl::InternalError("nothing was ready");
    }
    return absl::OkStatus();
  };
  StageGroup group(std::move(stages), WithStall(absl::Seconds(240), 2));
  const absl::Status status = group
                                  .Step(kStageBatch,
                                        [&](uint64_t from) {
                                          if (from == 2) last_is_ready.Notify();
                                        })
                                  .status();
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(StageGroup, StageThatHangsIsNamedWithItsMicroBatchAndEndsTheGroup) {
  auto stages = std::make_unique<ScriptedStages>();
  absl::Notification released;
  stages->before = [&](size_t stage, bool forward, size_t micro_batch) {
    if (stage == 1 && !forward && micro_batch == 2) released.WaitForNotification();
    return absl::OkStatus();
  };
  StageGroup group(std::move(stages), WithStall(absl::Milliseconds(100), 4));
  const absl::Status status = group.Step(kStageBatch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(),
            "stage 1 has not ended backward of micro-batch 3 of 4 for 50ms; the other stages wait for it. If a step "
            "takes so long, set a larger timeouts.stall_ms");
  EXPECT_EQ(group.given_up(), status);
  EXPECT_EQ(group.Step(kStageBatch).status(), status);
  released.Notify();
}

TEST(StageGroup, FailureOfAStageLetsTheOthersGoAndTheNextStepWorks) {
  for (const bool in_forward : {true, false}) {
    for (size_t failing = 0; failing < kStages; ++failing) {
      auto stages = std::make_unique<ScriptedStages>();
      std::atomic<bool> fails = true;
      stages->before = [&](size_t stage, bool forward, size_t micro_batch) {
        const bool now = stage == failing && forward == in_forward && micro_batch == 1 && fails;
        return now ? absl::InternalError("LibTorch: broken") : absl::OkStatus();
      };
      const std::atomic<size_t>& left = stages->left;
      // Would be a hang if the others waited for the one that failed.
      StageGroup group(std::move(stages), WithStall(absl::InfiniteDuration(), 4));
      EXPECT_EQ(group.Step(kStageBatch).status(),
                absl::InternalError("stage " + std::to_string(failing) + ": LibTorch: broken"));
      EXPECT_EQ(left, kStages);
      fails = false;
      EXPECT_EQ(group.Step(kStageBatch).status(), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace slackline::worker::stage_group_test

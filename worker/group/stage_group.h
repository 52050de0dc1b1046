// StageGroup: a local group whose devices are the stages of one model. Micro-batches move through the stages.
#pragma once

#include <memory>
#include <vector>

#include "worker/group/local_group.h"
#include "worker/group/stage_line.h"
#include "worker/group/task_thread.h"
#include "worker/model/staged_model.h"

namespace slackline::worker {

// StageGroup computes the whole model's gradient on the whole batch, up to float32 rounding. The gradient is the same
// in every run: micro-batches are added in their order. Stages become ready from the last to the first.
//
// Thread-safety: none.
// Threads:       one per stage, started in the constructor, joined in the destructor.
class StageGroup final : public LocalGroup {
 public:
  // Creates a group. Each batch passes through in options.micro_batches parts, or in fewer if it has fewer images.
  // `batches`: null on CPUs.
  StageGroup(std::unique_ptr<StagedModel> model, const GroupOptions& options,
             std::unique_ptr<images::BatchMemory> batches = nullptr);
  ~StageGroup() override;

  size_t devices() const override { return model_->stages(); }
  Model& model() override { return *model_; }
  using LocalGroup::Step;
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override;
  images::BatchMemory* batch_memory() override { return batches_.get(); }
  absl::Status given_up() const override { return given_up_; }

 private:
  // Runs in the thread of a stage.
  void Run(size_t stage, const LineShape& shape);
  // Performs the stage's tasks in order. Returns the element at which its gradients begin.
  absl::StatusOr<uint64_t> Compute(size_t stage, const LineShape& shape);
  absl::Status Await(const Model::Ready& ready);

  const GroupOptions options_;
  const size_t micro_batches_;
  const std::unique_ptr<images::BatchMemory> batches_;
  const std::unique_ptr<StagedModel> model_;
  const SteadyTime time_;
  std::vector<TraceRow> rows_;  // indexed by stage
  StageLine line_;
  // indexed by stage; each belongs to its stage's thread until the stage has left the line
  std::vector<absl::Status> failures_;
  absl::Duration longest_step_ = absl::ZeroDuration();
  absl::Status given_up_;
  std::vector<std::unique_ptr<TaskThread>> threads_;
};

}  // namespace slackline::worker

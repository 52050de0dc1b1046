#include "worker/group/stage_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/computing_watch.h"

namespace slackline::worker {
namespace {

// A stage is then idle for less than a fifth of the step: (stages - 1) of (stages - 1 + micro-batches) turns.
constexpr size_t kMicroBatchesOfAStage = 4;

}  // namespace

StageGroup::StageGroup(std::unique_ptr<StagedModel> model, const GroupOptions& options,
                       std::unique_ptr<images::BatchMemory> batches)
    : options_(options),
      micro_batches_(options.micro_batches > 0 ? options.micro_batches : kMicroBatchesOfAStage * model->stages()),
      batches_(std::move(batches)),
      model_(std::move(model)) {
  for (size_t i = 0; i < model_->stages(); ++i) {
    rows_.push_back(AddRow(options.trace, absl::StrCat("stage ", i)));
    threads_.push_back(std::make_unique<TaskThread>());
  }
}

StageGroup::~StageGroup() = default;

absl::StatusOr<StepResult> StageGroup::Step(const BatchView& batch, const Model::Ready& ready) {
  if (!given_up_.ok()) return given_up_;
  if (batch.arrival != nullptr) {
    if (absl::Status all = batch.arrival->AwaitAll(); !all.ok()) return all;
  }
  const absl::Time begin = time_.Now();
  const LineShape shape = {.stages = model_->stages(), .micro_batches = std::min(micro_batches_, batch.labels.size())};
  const absl::Status begun = model_->BeginStep(batch, shape.micro_batches);
  if (!begun.ok()) return begun;
  failures_.assign(shape.stages, absl::OkStatus());
  line_.Begin(shape);
  for (size_t i = 0; i < shape.stages; ++i) threads_[i]->Start([this, i, shape] { Run(i, shape); });
  if (const absl::Status status = Await(ready); !status.ok()) return status;
  longest_step_ = std::max(longest_step_, time_.Now() - begin);
  return model_->result();
}

void StageGroup::Run(size_t stage, const LineShape& shape) {
  const absl::StatusOr<uint64_t> from = Compute(stage, shape);
  if (from.ok()) return line_.Leave(stage, *from);
  failures_[stage] = from.status();
  // The others first: the device may hang.
  line_.Stop();
  model_->DropStage(stage);
  line_.LeaveEarly(stage);
}

absl::StatusOr<uint64_t> StageGroup::Compute(size_t stage, const LineShape& shape) {
  for (const StageTask& task : TasksOf(stage, shape)) {
    if (!line_.AwaitTurn(stage, task)) return absl::CancelledError("another stage has failed");
    const TraceSpan span(rows_[stage], {task.forward ? "forward" : "backward", static_cast<int64_t>(task.micro_batch)});
    const absl::Status status =
        task.forward ? model_->Forward(stage, task.micro_batch) : model_->Backward(stage, task.micro_batch);
    if (!status.ok()) return status;
    line_.Done(stage, task);
  }
  return model_->EndStage(stage);
}

absl::Status StageGroup::Await(const Model::Ready& ready) {
  // As ThreadGroup has it.
  const absl::Duration silence_max = std::max(options_.timeouts.stall / 2, 10 * longest_step_);
  // Nobody knows yet how long a step takes.
  ComputingPatience patience(longest_step_ == absl::ZeroDuration() ? ComputingWatch::kPatience : 1);
  for (size_t told = 0;;) {
    const absl::StatusOr<StageLine::Ends> ends = line_.AwaitEnds(told, silence_max);
    if (!ends.ok() && patience.Lasts()) continue;
    if (!ends.ok()) {
      line_.Stop();
      return given_up_ = ends.status();
    }
    if (ends->stages > told) ready(ends->from);
    told = ends->stages;
    if (ends->over) break;
  }
  for (size_t i = 0; i < failures_.size(); ++i) {
    if (failures_[i].ok() || absl::IsCancelled(failures_[i])) continue;
    return absl::Status(failures_[i].code(), absl::StrCat("stage ", i, ": ", std::string(failures_[i].message())));
  }
  return absl::OkStatus();
}

}  // namespace slackline::worker

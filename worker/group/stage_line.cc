#include "worker/group/stage_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/group/silence.h"

namespace slackline::worker {

std::vector<StageTask> TasksOf(size_t stage, const LineShape& shape) {
  const size_t ahead = std::min(shape.micro_batches, shape.stages - 1 - stage);
  std::vector<StageTask> tasks;
  for (size_t i = 0; i < shape.micro_batches + ahead; ++i) {
    if (i < shape.micro_batches) tasks.push_back({.forward = true, .micro_batch = i});
    if (i >= ahead) tasks.push_back({.forward = false, .micro_batch = i - ahead});
  }
  return tasks;
}

void StageLine::Begin(const LineShape& shape) {
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(stages_.empty() || Count().over);
  shape_ = shape;
  stages_.assign(shape.stages, Stage());
  stopped_ = false;
  ++events_;
}

bool StageLine::MayBegin(size_t stage, const StageTask& task) const {
  if (task.forward) return stage == 0 || stages_[stage - 1].forwards > task.micro_batch;
  return stage + 1 == shape_.stages || stages_[stage + 1].backwards > task.micro_batch;
}

bool StageLine::AwaitTurn(size_t stage, const StageTask& task) {
  absl::MutexLock lock(&mutex_);
  stages_[stage].waits = true;
  // Whoever waits for the stages has a deadline, and stops this one, too.
  while (!stopped_ && !MayBegin(stage, task)) changed_.Wait(&mutex_);
  stages_[stage].waits = false;
  return !stopped_;
}

void StageLine::Done(size_t stage, const StageTask& task) {
  absl::MutexLock lock(&mutex_);
  ++(task.forward ? stages_[stage].forwards : stages_[stage].backwards);
  ++events_;
  changed_.SignalAll();
}

void StageLine::Leave(size_t stage, uint64_t from) {
  absl::MutexLock lock(&mutex_);
  stages_[stage].from = from;
  stages_[stage].through = stages_[stage].left = true;
  ++events_;
  changed_.SignalAll();
}

void StageLine::LeaveEarly(size_t stage) {
  absl::MutexLock lock(&mutex_);
  stages_[stage].left = stopped_ = true;
  ++events_;
  changed_.SignalAll();
}

void StageLine::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

StageLine::Ends StageLine::Count() const {
  Ends ends;
  for (auto stage = stages_.rbegin(); stage != stages_.rend() && stage->through; ++stage) {
    ++ends.stages;
    ends.from = stage->from;
  }
  ends.over = std::all_of(stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.left; });
  return ends;
}

absl::StatusOr<StageLine::Ends> StageLine::AwaitEnds(size_t stages, absl::Duration silence_max) {
  absl::MutexLock lock(&mutex_);
  GroupSilence silence(silence_max, events_);
  for (Ends ends = Count(); !ends.over && ends.stages <= stages; ends = Count()) {
    if (!changed_.WaitWithTimeout(&mutex_, silence.look()) || !silence.IsTooLong(events_)) continue;
    return absl::DeadlineExceededError(
        absl::StrCat(Awaited(), " for ", absl::FormatDuration(silence_max),
                     "; the other stages wait for it. If a step takes so long, set a larger timeouts.stall_ms"));
  }
  return Count();
}

std::string StageLine::Awaited() const {
  std::vector<std::string> awaited;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    if (stage.left || stage.waits) continue;
    const std::vector<StageTask> tasks = TasksOf(i, shape_);
    const size_t done = stage.forwards + stage.backwards;
    awaited.push_back(done == tasks.size()
                          ? absl::StrCat("stage ", i, " has not ended its step")
                          : absl::StrCat("stage ", i, " has not ended ", tasks[done].forward ? "forward" : "backward",
                                         " of micro-batch ", tasks[done].micro_batch + 1, " of ",
                                         shape_.micro_batches));
  }
  return absl::StrJoin(awaited, ", ");
}

}  // namespace slackline::worker

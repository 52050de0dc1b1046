// What evaluations say: noted, told, and judged.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

std::string WhyComplete(const DataRanges& ranges, uint32_t epochs) {
  if (!ranges.cut_short()) return "training is complete";
  return absl::StrCat("training has ended early, after ", ranges.epochs_done(), " of ", Counted(epochs, "epoch"));
}

}  // namespace

absl::Status Controller::ReportEvaluation(const wire::EvaluationReport& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  const Holder holder = {WorkerId(request.worker()), Incarnation(request.incarnation())};
  if (absl::Status alive = membership_.HeartbeatWorker(holder.worker, holder.incarnation, now); !alive.ok()) {
    return alive;
  }
  if (!tasks_) return absl::FailedPreconditionError("no evaluation was asked for");
  absl::StatusOr<bool> is_new = tasks_->FinishEvaluation(
      holder, {.epoch = request.epoch(), .final = request.final(), .at_samples = request.at_samples()});
  if (!is_new.ok()) return is_new.status();
  if (!*is_new || Ended()) return absl::OkStatus();
  if (request.samples() > 0) {
    // The weights are those of its beginning.
    const auto begun = measured_.find(holder);
    NoteEvaluation(request, begun != measured_.end() ? begun->second : StandingAt(now), NameOf(holder.worker));
  }
  AddReport(now);
  if (tasks_->Complete()) End(wire::JOB_DONE, WhyComplete(tasks_->ranges(), config_.job.training().epochs()));
  return absl::OkStatus();
}

void Controller::NoteObserved(wire::EvaluationReport report, uint64_t samples_applied) {
  absl::MutexLock lock(&mutex_);
  if (state_ != wire::JOB_TRAINING || !tasks_) return;
  EvaluationSummary begun = StandingAt(time_.Now());
  // Workers say late what they have trained; what they have said of discarded pushes is all that is known of those.
  begun.samples += samples_applied - std::min(samples_applied, begun.samples_applied);
  begun.samples_applied = std::max(samples_applied, begun.samples_applied);
  report.set_epoch(EpochsTrained());
  report.set_at_samples(std::max<uint64_t>(1, begun.samples_applied));
  NoteEvaluation(report, begun, "observed");
  AddReport(time_.Now());
}

void Controller::NoteEvaluation(const wire::EvaluationReport& report, const EvaluationSummary& begun,
                                const std::string& by) {
  Evaluations::Judgement judged = evaluations_.Note(report, begun, by);
  epoch_book_.Evaluated(report, /*alone=*/membership_.CountLive() <= 1);
  events_.Add(std::move(judged.told));
  if (judged.best) checkpoints_.KeepBest(evaluations_.all().back());
  if (report.final() || tasks_->ranges().cut_short() || !judged.ends) return;
  events_.Add(absl::StrCat("training ends early, after what is under way: ", *judged.ends));
  tasks_->EndEarly();
}

}  // namespace slackline::scheduler

// What evaluations say: noted, told, and judged.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/counted.h"
#include "scheduler/controller.h"
#include "scheduler/early_stopping.h"

namespace slackline::scheduler {
namespace {

// An evaluation that is larger is kept without its classes: a little more than scheduler.proto allows them to take.
constexpr size_t kEvaluationBytesMax = (1 << 20) + (64 << 10);

// "epoch 2: test accuracy 86.21 %, loss 0.3512 on 10000 images (worker-1)"
std::string Told(const wire::EvaluationReport& report, const EvaluationSummary& begun, const std::string& by) {
  const std::string when = report.at_samples() > 0 && !report.final()
                               ? absl::StrCat("after ", Counted(begun.samples_applied, "sample"))
                               : absl::StrCat("epoch ", report.epoch());
  const std::string figures =
      report.has_map_50() ? absl::StrFormat("mAP %.2f %%, %.2f %% at an overlap of 0.5,", 100 * report.accuracy(),
                                            100 * report.map_50())
                          : absl::StrFormat("test accuracy %.2f %%, loss %.4f", 100 * report.accuracy(), report.loss());
  return absl::StrFormat("%s: %s on %d images (%s)", when, figures, report.samples(), by);
}

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
  evaluation_ = report;
  // Whoever asks for the status gets it, too.
  if (evaluation_->ByteSizeLong() > kEvaluationBytesMax) evaluation_->clear_classes();
  evaluation_reported_ = false;
  EvaluationSummary& summary = evaluations_.emplace_back(begun);
  summary.epoch = report.epoch();
  summary.accuracy = report.accuracy();
  summary.loss = report.loss();
  summary.map = report.has_map_50();
  epoch_book_.Evaluated(report, /*alone=*/membership_.CountLive() <= 1);
  events_.Add(Told(report, begun, by));
  const job::Job& job = config_.job;
  if (job.checkpoint().keep_best() > 0 && LastIsBest(job.checkpoint().metric(), evaluations_)) {
    checkpoints_.KeepBest(evaluations_.back());
  }
  if (report.final() || tasks_->ranges().cut_short()) return;
  const std::optional<std::string> why = WhyEarly(job.training().early_stopping(), evaluations_, evaluations_before_);
  if (!why) return;
  events_.Add(absl::StrCat("training ends early, after what is under way: ", *why));
  tasks_->EndEarly();
}

}  // namespace slackline::scheduler

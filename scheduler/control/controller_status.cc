// Controller: answers for status, figures and events; evaluations; the end of the job on request.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/job_view.h"

namespace slackline::scheduler {
namespace {

std::string WhyComplete(const DataRanges& ranges, uint32_t epochs) {
  if (!ranges.cut_short()) return "training is complete";
  return absl::StrCat("training has ended early, after ", ranges.epochs_done(), " of ", Counted(epochs, "epoch"));
}

}  // namespace

std::vector<Report> Controller::TakeReports() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(job_.reports, {});
}

std::optional<std::vector<EpochFigures>> Controller::TakeEpochs() {
  absl::MutexLock lock(&mutex_);
  return job_.epoch_book.TakeNews();
}

std::deque<std::string> Controller::TakeEvents() {
  absl::MutexLock lock(&mutex_);
  return job_.events.Take();
}

void Controller::EventsRecorded() {
  absl::MutexLock lock(&mutex_);
  job_.events.Recorded();
}

void Controller::AddEvent(const std::string& event) {
  absl::MutexLock lock(&mutex_);
  job_.events.Add(event);
}

bool Controller::HasEvents() const {
  absl::MutexLock lock(&mutex_);
  return job_.events.waiting();
}

wire::GetStatusReply Controller::GetStatus() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  // The last word: what became of the last checkpoint is in it.
  job_.phase.status_seen = job_.phase.status_seen || job_.phase.stopping != absl::InfiniteFuture();
  wire::GetStatusReply reply;
  reply.set_job(config_.id.value());
  reply.set_name(config_.job.name());
  reply.set_state(job_.phase.state);
  reply.set_reason(job_.phase.state == wire::JOB_STARTING ? JobView(job_).Missing() : job_.phase.reason);
  JobView(job_).FillProgress(now, reply);
  JobView(job_).FillMembers(now, reply);
  job_.checkpoints.Fill(now, reply);
  for (const std::string& event : job_.events.recent()) reply.add_events(event);
  reply.set_event_count(job_.events.count());
  if (job_.evaluations.last()) *reply.mutable_evaluation() = *job_.evaluations.last();
  reply.set_page(config_.page);
  if (job_.progress.energy().metered())
    *reply.mutable_energy() = job_.progress.energy().View(job_.phase.ElapsedSeconds(now));
  return reply;
}

wire::JobStatus Controller::View() const {
  absl::MutexLock lock(&mutex_);
  return JobView(job_).View();
}

RunSummary Controller::Summary() {
  absl::MutexLock lock(&mutex_);
  return JobView(job_).Summary();
}

MembersView Controller::Members() const {
  absl::MutexLock lock(&mutex_);
  return JobView(job_).Members();
}

std::vector<ScrapeTarget> Controller::ScrapeTargets() const {
  absl::MutexLock lock(&mutex_);
  return JobView(job_).ScrapeTargets();
}

absl::Status Controller::ReportEvaluation(const wire::EvaluationReport& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  const Holder holder = {WorkerId(request.worker()), Incarnation(request.incarnation())};
  if (absl::Status alive = job_.membership.HeartbeatWorker(holder.worker, holder.incarnation, now); !alive.ok()) {
    return alive;
  }
  if (!job_.tasks) return absl::FailedPreconditionError("no evaluation was asked for");
  absl::StatusOr<bool> is_new = job_.tasks->FinishEvaluation(
      holder, {.epoch = request.epoch(), .final = request.final(), .at_samples = request.at_samples()});
  if (!is_new.ok()) return is_new.status();
  if (!*is_new || job_.phase.Ended()) return absl::OkStatus();
  if (request.samples() > 0) {
    // The weights are those of its beginning.
    const auto begun = job_.workers.measured.find(holder);
    course_.NoteEvaluation(request, begun != job_.workers.measured.end() ? begun->second : job_.StandingAt(now),
                           job_.NameOf(holder.worker));
  }
  course_.AddReport(now);
  if (job_.tasks->Complete())
    course_.End(wire::JOB_DONE, WhyComplete(job_.tasks->ranges(), config_.job.training().epochs()));
  return absl::OkStatus();
}

void Controller::NoteObserved(wire::EvaluationReport report, uint64_t samples_applied) {
  absl::MutexLock lock(&mutex_);
  if (job_.phase.state != wire::JOB_TRAINING || !job_.tasks) return;
  EvaluationSummary begun = job_.StandingAt(time_.Now());
  // Workers say late what they have trained; what they have said of discarded pushes is all that is known of those.
  begun.samples += samples_applied - std::min(samples_applied, begun.samples_applied);
  begun.samples_applied = std::max(samples_applied, begun.samples_applied);
  report.set_epoch(job_.EpochsTrained());
  report.set_at_samples(std::max<uint64_t>(1, begun.samples_applied));
  course_.NoteEvaluation(report, begun, "observed");
  course_.AddReport(time_.Now());
}

void Controller::StopJob(const std::string& reason, bool failed) {
  absl::MutexLock lock(&mutex_);
  course_.End(failed ? wire::JOB_FAILED : wire::JOB_STOPPED, reason);
}

void Controller::Dismiss(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  // If training never began, nobody asks how the job ended.
  if (job_.phase.Ended() || job_.phase.state == wire::JOB_STARTING) job_.phase.status_seen = true;
  course_.End(wire::JOB_STOPPED, reason);
}

bool Controller::finished() const {
  absl::MutexLock lock(&mutex_);
  return job_.phase.finished;
}

wire::JobState Controller::state() const {
  absl::MutexLock lock(&mutex_);
  return job_.phase.state;
}

}  // namespace slackline::scheduler

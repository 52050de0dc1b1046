#include "scheduler/control/controller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/control/job_checkpoints.h"
#include "scheduler/control/job_page.h"
#include "scheduler/control/job_reports.h"
#include "scheduler/control/job_status.h"
#include "scheduler/control/job_summary.h"
#include "scheduler/control/job_tick.h"
#include "scheduler/control/saved_state.h"

namespace slackline::scheduler {

Controller::Controller(const Config& config, const TimeSource& time, ServerCalls& servers)
    : config_(config),
      time_(time),
      images_({.silence_max = config.timeouts.worker_dead(), .nodes_expected = config.job.cluster().workers()}),
      course_(job_),
      job_(config_, time, servers, *this, course_),
      members_(job_, course_, *this) {}

absl::StatusOr<wire::RegisterServerReply> Controller::RegisterServer(const wire::RegisterServerRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.RegisterServer(request);
}

absl::StatusOr<wire::RegisterWorkerReply> Controller::RegisterWorker(const wire::RegisterWorkerRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.RegisterWorker(request);
}

absl::StatusOr<wire::HeartbeatReply> Controller::Heartbeat(const wire::HeartbeatRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.Heartbeat(request);
}

absl::StatusOr<wire::GetShardMapReply> Controller::GetShardMap(const wire::GetShardMapRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.GetShardMap(request);
}

absl::StatusOr<wire::NextTaskReply> Controller::NextTask(const wire::NextTaskRequest& request) {
  std::vector<uint8_t> distances;
  if (!request.images_address().empty()) {
    absl::MutexLock lock(&images_mutex_);
    distances = images_.DistancesFrom(request.images_address(), request.images_borrowed(), time_.Now());
  }
  absl::MutexLock lock(&mutex_);
  return members_.NextTask(request, distances);
}

absl::StatusOr<wire::LeasePartsReply> Controller::LeaseParts(const wire::LeasePartsRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.LeaseParts(request);
}

absl::Status Controller::ReportEvaluation(const wire::EvaluationReport& request) {
  absl::MutexLock lock(&mutex_);
  return members_.ReportEvaluation(request);
}

absl::Status Controller::ReportExit(const wire::ReportExitRequest& request) {
  absl::MutexLock lock(&mutex_);
  return members_.ReportExit(request);
}

absl::StatusOr<wire::FindImagesReply> Controller::FindImages(const wire::FindImagesRequest& request) {
  const absl::Status same = CheckFingerprint(config_, "a worker that asks for images", request.job_fingerprint());
  if (!same.ok()) return same;
  absl::MutexLock lock(&images_mutex_);
  return images_.Ask(request, time_.Now());
}

wire::GetStatusReply Controller::GetStatus() {
  absl::MutexLock lock(&mutex_);
  // The last word: what became of the last checkpoint is in it.
  job_.phase.status_seen = job_.phase.status_seen || job_.phase.stopping != absl::InfiniteFuture();
  return MakeStatus(job_);
}

absl::StatusOr<wire::CheckpointReply> Controller::Checkpoint(const wire::CheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  return RequestCheckpoint(job_, request);
}

absl::StatusOr<wire::ChangeServersReply> Controller::ChangeServers(const wire::ChangeServersRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (job_.phase.state == wire::JOB_STARTING) {
    return absl::FailedPreconditionError(
        absl::StrCat("servers change while training goes on; the job ", Missing(job_)));
  }
  return job_.moves.Change(request);
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

void Controller::NoteObserved(const wire::EvaluationReport& report, uint64_t samples_applied) {
  absl::MutexLock lock(&mutex_);
  scheduler::NoteObserved(job_, report, samples_applied);
}

void Controller::Installed(ServerRef server, const wire::InstallShardsReply& reply) {
  absl::MutexLock lock(&mutex_);
  course_.Installed(server, reply);
}

void Controller::MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) {
  absl::MutexLock lock(&mutex_);
  course_.MembersInstalled(server, reply);
}

void Controller::Stopped(ServerRef server) {
  absl::MutexLock lock(&mutex_);
  course_.Stopped(server);
}

void Controller::CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                                 const absl::StatusOr<wire::BeginCheckpointReply>& reply) {
  absl::MutexLock lock(&mutex_);
  job_.checkpoints.Answered(server.server, request, reply, CheckpointFacts(job_, time_.Now()));
  SendCheckpointCall(job_);
}

void Controller::TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  job_.moves.Refused(server.server, request.move(), status, job_.Facts());
}

void Controller::Refused(ServerRef server, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  course_.Refused(server, status);
}

void Controller::Tick() {
  absl::MutexLock lock(&mutex_);
  TickJob(job_, course_);
}

bool Controller::finished() const {
  absl::MutexLock lock(&mutex_);
  return job_.phase.finished;
}

wire::JobState Controller::state() const {
  absl::MutexLock lock(&mutex_);
  return job_.phase.state;
}

bool Controller::StoppedUnsaved() const {
  absl::MutexLock lock(&mutex_);
  return job_.StoppedUnsaved();
}

state::Scheduler Controller::Save(absl::Time wall_time) const {
  absl::MutexLock lock(&mutex_);
  return SaveState(job_, wall_time);
}

void Controller::StateKept(const state::Scheduler& state) {
  absl::MutexLock lock(&mutex_);
  job_.phase.end_kept =
      job_.phase.end_kept || (state.job_state() != wire::JOB_STARTING && state.job_state() != wire::JOB_TRAINING);
  for (const auto& [server, actions] : job_.backups.Kept(state)) course_.ShardsChanged(server, actions);
  job_.moves.Kept(state);
}

absl::Status Controller::Restore(const state::Scheduler& state, absl::Time wall_time) {
  absl::MutexLock lock(&mutex_);
  return RestoreState(state, wall_time, job_, course_, *this);
}

absl::Status Controller::GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder) {
  absl::MutexLock lock(&mutex_);
  return GoOnFromCheckpoint(manifest, folder, job_, course_);
}

CheckpointDuty Controller::DueOnDisk() const {
  absl::MutexLock lock(&mutex_);
  return {job_.checkpoints.to_commit(), job_.checkpoints.failed(), job_.goes_on_from};
}

void Controller::CheckpointCommitted(const absl::StatusOr<std::string>& folder) {
  absl::MutexLock lock(&mutex_);
  job_.checkpoints.Committed(folder, CheckpointFacts(job_, time_.Now()));
}

std::vector<Report> Controller::TakeReports() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(job_.reports, {});
}

std::optional<std::vector<EpochFigures>> Controller::TakeEpochs() {
  absl::MutexLock lock(&mutex_);
  return job_.epoch_book.TakeNews();
}

std::vector<PowerRow> Controller::TakePower() {
  absl::MutexLock lock(&mutex_);
  if (job_.phase.began == absl::InfiniteFuture()) return {};
  return job_.progress.TakePower(job_.phase.began);
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

wire::JobStatus Controller::View() const {
  absl::MutexLock lock(&mutex_);
  return MakePage(job_);
}

RunSummary Controller::Summary() const {
  absl::MutexLock lock(&mutex_);
  return MakeSummary(job_);
}

MembersView Controller::Members() const {
  absl::MutexLock lock(&mutex_);
  return MakeMembersView(job_);
}

}  // namespace slackline::scheduler

// The controller's part in checkpoints (checkpoints.h), and how a run continues from one.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/job/job_kinds.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/state_check.h"

namespace slackline::scheduler {

absl::StatusOr<wire::CheckpointReply> Controller::Checkpoint(const wire::CheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (!job_.checkpoints.in_progress()) {
    if (absl::Status can = course_.CanCheckpoint(); !can.ok()) return can;
    course_.BeginCheckpoint(request.reason().empty() ? "on demand" : request.reason(), time_.Now());
  }
  wire::CheckpointReply reply;
  reply.set_checkpoint(job_.checkpoints.last_number());
  return reply;
}

bool Controller::StoppedUnsaved() const {
  absl::MutexLock lock(&mutex_);
  const bool trained =
      job_.phase.began != absl::InfiniteFuture() && job_.progress.totals().samples() != job_.checkpoints.samples();
  return job_.phase.state == wire::JOB_STOPPED && config_.keeps_state && !config_.snapshot_folder.empty() &&
         config_.job.checkpoint().at_end() && trained;
}

void Controller::CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                                 const absl::StatusOr<wire::BeginCheckpointReply>& reply) {
  absl::MutexLock lock(&mutex_);
  job_.checkpoints.Answered(server.server, request, reply, course_.CheckpointFacts(time_.Now()));
  course_.SendCheckpointCall();
}

std::optional<checkpoint::Manifest> Controller::CheckpointToCommit() const {
  absl::MutexLock lock(&mutex_);
  return job_.checkpoints.to_commit();
}

uint64_t Controller::CheckpointThatFailed() const {
  absl::MutexLock lock(&mutex_);
  return job_.checkpoints.failed();
}

std::string Controller::GoesOnFrom() const {
  absl::MutexLock lock(&mutex_);
  return job_.goes_on_from;
}

void Controller::CheckpointCommitted(const absl::StatusOr<std::string>& folder) {
  absl::MutexLock lock(&mutex_);
  job_.checkpoints.Committed(folder, course_.CheckpointFacts(time_.Now()));
}

absl::Status Controller::GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder) {
  const state::Scheduler& state = manifest.scheduler();
  if (state.tasks().ranges().next_epoch() > config_.job.training().epochs()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of epoch ", state.tasks().ranges().next_epoch(),
                                                      "; training.epochs is ", config_.job.training().epochs()));
  }
  if (manifest.seed() != config_.job.seed()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of a run with seed ", manifest.seed(),
                                                      ", which says the ", "order of the ", SamplesNoun(config_.job),
                                                      "; found seed ", config_.job.seed()));
  }
  // The checkpoint's members only lend their numbers, and its end does not count.
  state::Scheduler work = state;
  work.set_job_state(wire::JOB_STARTING);
  work.clear_members();
  work.mutable_members()->set_epoch(state.members().epoch());
  work.mutable_members()->set_last_incarnation(state.members().last_incarnation());
  work.clear_placement();
  work.clear_backups();
  work.clear_promoted();
  if (absl::Status sense = CheckState(work, config_.job); !sense.ok()) return sense;
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(job_.phase.state == wire::JOB_STARTING && job_.membership.servers().empty());
  if (absl::Status learnt = LearnModel(state.first_worker()); !learnt.ok()) return learnt;
  if (job_.shards.layout().elements != manifest.elements() ||
      job_.shards.layout().trained_elements != manifest.trained_elements()) {
    return absl::DataLossError(absl::StrCat(folder, ": its model and its shards contradict each other"));
  }
  job_.data_kept = job_.first_worker->data_fingerprint();
  if (job_.data_kept != 0 && config_.job.data().replaces() == FingerprintText(job_.data_kept)) {
    job_.events.Add("other training data take the place of those of the checkpoint, as data.replaces says");
    job_.data_kept = 0;
    job_.first_worker->clear_data_fingerprint();
  }
  job_.tasks->GoOnFrom(state.tasks());
  if (job_.tasks->Complete()) {
    return absl::FailedPreconditionError(
        absl::StrCat("all ", config_.job.training().epochs(), " epochs are done in ", folder,
                     "; to train on, add epochs: --set training.epochs=", config_.job.training().epochs() + 1));
  }
  // Numbers go on from those of the earlier members, so that nobody is taken for one of them.
  MembershipActions none;
  Membership::State numbers;
  numbers.epoch = Epoch(state.members().epoch());
  numbers.last_incarnation = Incarnation(state.members().last_incarnation());
  job_.membership.Restore(std::move(numbers), {}, time_.Now(), none);
  std::map<WorkerId, std::string> names;
  for (const state::Worker& worker : state.members().workers()) names[WorkerId(worker.worker())] = worker.name();
  job_.progress.Resume(state.progress(), names);
  job_.watch.Restore(state, job_.progress.totals());
  job_.evaluations.Restore(state, /*anew=*/true);
  job_.epoch_book.Restore(state.epochs());
  job_.workers.deaths = state.worker_deaths();
  job_.events.GoOnFrom(state.events());
  job_.phase.elapsed_before = absl::Seconds(state.elapsed_s());
  job_.goes_on_from = folder;
  job_.checkpoints.GoOnFrom(manifest, folder, course_.CheckpointFacts(time_.Now()));
  job_.events.Add(absl::StrFormat("goes on from checkpoint %d: %d samples, %d of %d epochs done, %.1f s trained",
                                  manifest.number(), job_.progress.totals().samples(),
                                  job_.tasks->ranges().epochs_done(), config_.job.training().epochs(),
                                  state.elapsed_s()));
  return absl::OkStatus();
}

}  // namespace slackline::scheduler

// The controller's part in checkpoints (checkpoints.h), and how a run continues from one.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/state_check.h"

namespace slackline::scheduler {

absl::StatusOr<wire::CheckpointReply> Controller::Checkpoint(const wire::CheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
  if (!checkpoints_.in_progress()) {
    if (absl::Status can = CanCheckpoint(); !can.ok()) return can;
    BeginCheckpoint(request.reason().empty() ? "on demand" : request.reason(), time_.Now());
  }
  wire::CheckpointReply reply;
  reply.set_checkpoint(checkpoints_.last_number());
  return reply;
}

absl::Status Controller::AllServersThere() const {
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state != ServerState::kLive || lost_since_.contains(id)) {
      return absl::UnavailableError(absl::StrCat(Called("server", server.name), " is not there"));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::CanCheckpoint() const {
  if (config_.checkpoint_folder.empty()) return absl::FailedPreconditionError("this scheduler makes no checkpoints");
  if (state_ == wire::JOB_STARTING) return absl::UnavailableError(absl::StrCat("the job ", Missing()));
  if (const absl::Status there = AllServersThere(); !there.ok()) return there;
  if (moves_.Decided()) return absl::UnavailableError("shards are changing hands");
  if (!AllSeeded()) return absl::UnavailableError("the shards have no weights yet");
  return absl::OkStatus();
}

Checkpoints::Facts Controller::CheckpointFacts(absl::Time now) const {
  return {.now = now,
          .began = began_,
          .ended = Ended(),
          .samples = progress_.totals().samples,
          .epochs = tasks_ ? tasks_->ranges().epochs_done() : 0};
}

void Controller::WatchCheckpoints(absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(now);
  checkpoints_.Tick(facts);
  SendCheckpointCall();
  if (!tasks_ || state_ == wire::JOB_STARTING) return;
  facts.possible = CanCheckpoint();
  if (const std::optional<std::string> reason = checkpoints_.Due(facts)) BeginCheckpoint(*reason, now);
}

void Controller::BeginCheckpoint(const std::string& reason, absl::Time now) {
  std::map<ServerId, std::string> servers;
  for (const auto& [id, server] : membership_.servers()) servers[id] = server.name;
  checkpoints_.Begin(reason, SaveLocked(absl::InfinitePast()), shards_.layout(), std::move(servers),
                     CheckpointFacts(now));
  SendCheckpointCall();
}

void Controller::SendCheckpointCall() {
  std::optional<wire::BeginCheckpointRequest> request = checkpoints_.TakeCall();
  if (!request) return;
  for (const auto& [id, server] : membership_.servers()) {
    request->set_generation(shards_.GenerationOf(id).value());
    request->set_server_incarnation(server.incarnation.value());
    servers_.BeginCheckpoint({id, server.incarnation}, *request);
  }
}

bool Controller::AwaitsLastCheckpoint(absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(now);
  facts.possible = CanCheckpoint();
  const Checkpoints::Last last = checkpoints_.LastOne(facts);
  if (last == Checkpoints::Last::kBegin) BeginCheckpoint(reason_, now);
  return last != Checkpoints::Last::kNothing;
}

bool Controller::StoppedUnsaved() const {
  absl::MutexLock lock(&mutex_);
  const bool trained = began_ != absl::InfiniteFuture() && progress_.totals().samples != checkpoints_.samples();
  return state_ == wire::JOB_STOPPED && config_.keeps_state && !config_.snapshot_folder.empty() &&
         config_.job.checkpoint().at_end() && trained;
}

void Controller::CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                                 const absl::StatusOr<wire::BeginCheckpointReply>& reply) {
  absl::MutexLock lock(&mutex_);
  checkpoints_.Answered(server.server, request, reply, CheckpointFacts(time_.Now()));
  SendCheckpointCall();
}

uint64_t Controller::HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress) {
  const uint64_t heard = checkpoints_.Heard(server, progress, CheckpointFacts(time_.Now()));
  SendCheckpointCall();
  return heard;
}

std::optional<checkpoint::Manifest> Controller::CheckpointToCommit() const {
  absl::MutexLock lock(&mutex_);
  return checkpoints_.to_commit();
}

uint64_t Controller::CheckpointThatFailed() const {
  absl::MutexLock lock(&mutex_);
  return checkpoints_.failed();
}

std::string Controller::GoesOnFrom() const {
  absl::MutexLock lock(&mutex_);
  return goes_on_from_;
}

void Controller::CheckpointCommitted(const absl::StatusOr<std::string>& folder) {
  absl::MutexLock lock(&mutex_);
  checkpoints_.Committed(folder, CheckpointFacts(time_.Now()));
}

// --- Going on from one ------------------------------------------------------------------------------------------

absl::Status Controller::GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder) {
  const state::Scheduler& state = manifest.scheduler();
  if (state.tasks().ranges().next_epoch() > config_.job.training().epochs()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of epoch ", state.tasks().ranges().next_epoch(),
                                                      "; training.epochs is ", config_.job.training().epochs()));
  }
  if (manifest.seed() != config_.job.seed()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of a run with seed ", manifest.seed(),
                                                      ", which says the ", "order of the images; found seed ",
                                                      config_.job.seed()));
  }
  // Of its members only the numbers count, and how it ended does not.
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
  SLACKLINE_CHECK(state_ == wire::JOB_STARTING && membership_.servers().empty());
  if (absl::Status learnt = LearnModel(state.first_worker()); !learnt.ok()) return learnt;
  if (shards_.layout().elements != manifest.elements() ||
      shards_.layout().trained_elements != manifest.trained_elements()) {
    return absl::DataLossError(absl::StrCat(folder, ": its model and its shards contradict each other"));
  }
  data_kept_ = first_worker_->data_fingerprint();
  if (data_kept_ != 0 && config_.job.data().replaces() == FingerprintText(data_kept_)) {
    events_.Add("other training data take the place of those of the checkpoint, as data.replaces says");
    data_kept_ = 0;
    first_worker_->clear_data_fingerprint();
  }
  tasks_->GoOnFrom(state.tasks());
  if (tasks_->Complete()) {
    return absl::FailedPreconditionError(
        absl::StrCat("all ", config_.job.training().epochs(), " epochs are done in ", folder,
                     "; to train on, add epochs: --set training.epochs=", config_.job.training().epochs() + 1));
  }
  // Who they were is over: numbers go on, so that nobody is taken for one of them.
  MembershipActions none;
  Membership::State numbers;
  numbers.epoch = Epoch(state.members().epoch());
  numbers.last_incarnation = Incarnation(state.members().last_incarnation());
  membership_.Restore(std::move(numbers), {}, time_.Now(), none);
  std::map<WorkerId, std::string> names;
  for (const state::Worker& worker : state.members().workers()) names[WorkerId(worker.worker())] = worker.name();
  progress_.Resume(state.progress(), names);
  watch_.Restore(state, progress_.totals());
  evaluations_.Restore(state, /*anew=*/true);
  epoch_book_.Restore(state.epochs());
  worker_deaths_ = state.worker_deaths();
  events_.GoOnFrom(state.events());
  elapsed_before_ = absl::Seconds(state.elapsed_s());
  goes_on_from_ = folder;
  checkpoints_.GoOnFrom(manifest, folder, CheckpointFacts(time_.Now()));
  events_.Add(absl::StrFormat("goes on from checkpoint %d: %d samples, %d of %d epochs done, %.1f s trained",
                              manifest.number(), progress_.totals().samples, tasks_->ranges().epochs_done(),
                              config_.job.training().epochs(), state.elapsed_s()));
  return absl::OkStatus();
}

}  // namespace slackline::scheduler

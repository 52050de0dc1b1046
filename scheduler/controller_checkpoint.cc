// Checkpoints of the job: when one is made, and what becomes of it. Files are written by servers, the folder is named
// by the main thread (run_loop.cc); here is who knows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/checkpoint/folder.h"
#include "scheduler/controller.h"
#include "scheduler/early_stopping.h"
#include "scheduler/state_check.h"

namespace slackline::scheduler {
namespace {

// An epoch's checkpoint that has failed is made up for.
constexpr absl::Duration kRetryAfter = absl::Seconds(30);
// The last one, on a disk that is full.
constexpr absl::Duration kRoomAgainAfter = absl::Seconds(2);

bool TakesStepsTogether(const job::Job& job) {
  // The sets of a quorum may differ between shards: their versions say nothing about one another.
  return job.consistency().mode() == job::Consistency::BSP;
}

}  // namespace

// --- When -------------------------------------------------------------------------------------------------------

absl::StatusOr<wire::CheckpointReply> Controller::Checkpoint(const wire::CheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
  wire::CheckpointReply reply;
  if (!checkpoint_.round && !checkpoint_.to_commit) {
    if (absl::Status can = CanCheckpoint(); !can.ok()) return can;
    BeginCheckpoint(request.reason().empty() ? "on demand" : request.reason(), time_.Now());
  }
  reply.set_checkpoint(checkpoint_.last_number);
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
  if (move_ && move_->committed) return absl::UnavailableError("shards are changing hands");
  if (!AllSeeded()) return absl::UnavailableError("the shards have no weights yet");
  return absl::OkStatus();
}

void Controller::WatchCheckpoints(absl::Time now) {
  if (checkpoint_.round) {
    checkpoint_.round->Tick(now);
    return FollowCheckpoint(now);
  }
  if (Ended() || checkpoint_.to_commit || !tasks_) return;
  const job::Checkpoint& job = config_.job.checkpoint();
  const uint32_t epochs = tasks_->ranges().epochs_done();
  checkpoint_.last_begun = std::max(checkpoint_.last_begun, began_);
  std::string reason;
  // One that fails is tried again, but not at once.
  const bool just_failed = now - checkpoint_.failed_at < kRetryAfter;
  if (checkpoint_.best_due && !just_failed) {
    reason = absl::StrCat("best ", Described(job.metric(), *checkpoint_.best_due), " after epoch ",
                          checkpoint_.best_due->epoch);
  } else if (job.every_epochs() > 0 && epochs >= checkpoint_.epochs + job.every_epochs() && !just_failed) {
    reason = absl::StrCat("every ", job.every_epochs(), " epochs");
  } else if (job.every_s() > 0 && now - checkpoint_.last_begun >= absl::Seconds(job.every_s())) {
    reason = absl::StrCat("every ", job.every_s(), " s");
  }
  // What is not possible now is made up for as soon as it is.
  if (!reason.empty() && CanCheckpoint().ok()) BeginCheckpoint(reason, now);
}

void Controller::BeginCheckpoint(const std::string& reason, absl::Time now) {
  checkpoint_.last_begun = now;
  // Before any shard is cut: what is done here is in all of them.
  checkpoint_.state = SaveLocked(absl::InfinitePast());
  CheckpointRound::Config config;
  config.number = ++checkpoint_.last_number;
  config.reason = reason;
  config.aligned = TakesStepsTogether(config_.job) && !Ended();
  config.apart_max = config_.job.wire().window();
  for (const auto& [id, server] : membership_.servers()) config.servers[id] = server.name;
  config.begun = now;
  config.timeout = absl::Seconds(config_.job.checkpoint().timeout_s());
  checkpoint_.best_of_round = std::exchange(checkpoint_.best_due, std::nullopt);
  checkpoint_.round.emplace(std::move(config));
  FollowCheckpoint(now);
}

bool Controller::MayGetRoom(absl::Time now) const {
  return checkpoint_.last_tried && checkpoint_.no_room && no_room_since_ && !checkpoint_.round &&
         !checkpoint_.to_commit && now - *no_room_since_ <= absl::Seconds(config_.job.checkpoint().timeout_s());
}

bool Controller::AwaitsLastCheckpoint(absl::Time now) {
  // Also of a job that has failed: where the servers are all there, the last worker may have gone.
  if (config_.checkpoint_folder.empty()) return false;
  const bool wanted = config_.job.checkpoint().at_end() || checkpoint_.best_due || checkpoint_.best_of_round;
  if (!wanted) return false;
  if (MayGetRoom(now)) {
    if (now - checkpoint_.failed_at < kRoomAgainAfter) return true;
    checkpoint_.last_tried = false;
  }
  if (!checkpoint_.last_tried && !checkpoint_.to_commit) {
    // One that waits for a step may wait for workers that have left.
    if (checkpoint_.round) DropRound();
    checkpoint_.last_tried = true;
    // One of what was kept before would only take the place of an earlier one.
    const bool kept = progress_.totals().samples == checkpoint_.samples && !checkpoint_.best_due;
    if (began_ == absl::InfiniteFuture() || kept) return false;
    if (!checkpoint_.last_since) checkpoint_.last_since = now;
    if (const absl::Status can = CanCheckpoint(); can.ok()) {
      BeginCheckpoint(reason_, now);
    } else if (now - *checkpoint_.last_since <= config_.timeouts.server_dead()) {
      // Of a run that was very short, the servers' heartbeats have not said yet that there are weights.
      checkpoint_.last_tried = false;
      return true;
    } else {
      CheckpointFailed(checkpoint_.last_number + 1, can);
    }
  }
  return checkpoint_.round || checkpoint_.to_commit || MayGetRoom(now);
}

bool Controller::StoppedUnsaved() const {
  absl::MutexLock lock(&mutex_);
  const bool trained = began_ != absl::InfiniteFuture() && progress_.totals().samples != checkpoint_.samples;
  return state_ == wire::JOB_STOPPED && config_.keeps_state && !config_.snapshot_folder.empty() &&
         config_.job.checkpoint().at_end() && trained;
}

// --- What becomes of it -----------------------------------------------------------------------------------------

void Controller::CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                                 const absl::StatusOr<wire::BeginCheckpointReply>& reply) {
  absl::MutexLock lock(&mutex_);
  if (!checkpoint_.round || checkpoint_.round->config().number != request.checkpoint()) return;
  checkpoint_.round->Answered(server.server,
                              {.attempt = request.attempt(), .ask_only = request.ask_only(), .at_version = {}}, reply);
  FollowCheckpoint(time_.Now());
}

uint64_t Controller::HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress) {
  if (progress.checkpoint() == 0) return 0;
  if (!checkpoint_.round || progress.checkpoint() < checkpoint_.round->config().number) {
    return progress.done() ? progress.checkpoint() : 0;  // nobody waits for it any more
  }
  const bool final = checkpoint_.round->Heard(server, progress);
  FollowCheckpoint(time_.Now());
  return final ? progress.checkpoint() : 0;
}

void Controller::FollowCheckpoint(absl::Time now) {
  if (const std::optional<CheckpointRound::Call> call = checkpoint_.round->TakeCall()) {
    wire::BeginCheckpointRequest request;
    request.set_job(config_.id.value());
    request.set_checkpoint(checkpoint_.round->config().number);
    request.set_attempt(call->attempt);
    request.set_folder(config_.checkpoint_folder + "/" + checkpoint::PartialNameOf(request.checkpoint(), config_.id));
    request.set_ask_only(call->ask_only);
    if (call->at_version) request.set_at_version(*call->at_version);
    for (const auto& [id, server] : membership_.servers()) {
      request.set_generation(GenerationOf(id).value());
      request.set_server_incarnation(server.incarnation.value());
      servers_.BeginCheckpoint({id, server.incarnation}, request);
    }
  }
  if (!checkpoint_.round->over()) return;
  const CheckpointRound round = *checkpoint_.round;
  if (!round.error().empty()) {
    DropRound();
    return CheckpointFailed(round.config().number, round.no_room() ? absl::ResourceExhaustedError(round.error())
                                                                   : absl::UnavailableError(round.error()));
  }
  checkpoint_.round.reset();
  checkpoint_.took = now - round.config().begun;
  checkpoint::Manifest manifest;
  manifest.set_number(round.config().number);
  manifest.set_job_name(config_.job.name());
  manifest.set_seed(config_.job.seed());
  manifest.set_reason(round.config().reason);
  manifest.set_elements(layout_.elements);
  manifest.set_trained_elements(layout_.trained_elements);
  for (const wire::CheckpointFile& file : round.Files()) *manifest.add_files() = file;
  *manifest.mutable_scheduler() = std::exchange(checkpoint_.state, {});
  if (checkpoint_.best_of_round) {
    *manifest.mutable_best()->mutable_evaluation() = ToState(*checkpoint_.best_of_round);
    manifest.mutable_best()->set_by_loss(config_.job.checkpoint().metric() == job::Metric::TEST_LOSS);
  }
  checkpoint_.to_commit = std::move(manifest);
}

void Controller::DropRound() {
  checkpoint_.round.reset();
  BestIsDueAgain();
}

void Controller::BestIsDueAgain() {
  if (!checkpoint_.best_due) checkpoint_.best_due = checkpoint_.best_of_round;
  checkpoint_.best_of_round.reset();
}

void Controller::CheckpointFailed(uint64_t number, const absl::Status& why) {
  const absl::Time now = time_.Now();
  checkpoint_.failed = number;
  checkpoint_.error = std::string(why.message());
  checkpoint_.failed_at = now;
  ++checkpoint_.failures;
  checkpoint_.no_room = absl::IsResourceExhausted(why);
  const bool at_end = Ended() && checkpoint_.last_tried && checkpoint_.no_room;
  const bool first = !no_room_since_;
  if (at_end && first) no_room_since_ = now;
  // The attempts that follow say the same again.
  if (at_end && !first && MayGetRoom(now)) return;
  const absl::Duration most = absl::Seconds(config_.job.checkpoint().timeout_s());
  events_.Add(absl::StrCat(
      "checkpoint ", number, " failed: ", why.message(),
      !at_end ? ""
      : MayGetRoom(now)
          ? absl::StrCat("; it is tried again for ", absl::FormatDuration(most),
                         " (checkpoint.timeout_s), while the servers keep the weights: make room "
                         "there")
          : absl::StrCat("; given up after ", Readable(now - *no_room_since_), " (checkpoint.timeout_s)")));
}

std::optional<checkpoint::Manifest> Controller::CheckpointToCommit() const {
  absl::MutexLock lock(&mutex_);
  return checkpoint_.to_commit;
}

uint64_t Controller::CheckpointThatFailed() const {
  absl::MutexLock lock(&mutex_);
  return checkpoint_.failed;
}

std::string Controller::GoesOnFrom() const {
  absl::MutexLock lock(&mutex_);
  return goes_on_from_;
}

void Controller::CheckpointCommitted(const absl::StatusOr<std::string>& folder) {
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(checkpoint_.to_commit.has_value());
  const checkpoint::Manifest manifest = *std::exchange(checkpoint_.to_commit, std::nullopt);
  if (!folder.ok()) {
    BestIsDueAgain();
    return CheckpointFailed(manifest.number(), folder.status());
  }
  checkpoint_.best_of_round.reset();
  checkpoint_.no_room = false;
  ++checkpoint_.made;
  checkpoint_.whole = manifest.number();
  checkpoint_.whole_at = time_.Now();
  checkpoint_.folder = *folder;
  checkpoint_.samples = manifest.scheduler().progress().totals().samples();
  checkpoint_.epochs = manifest.scheduler().tasks().ranges().epochs_done();
  uint64_t bytes = 0;
  for (const wire::CheckpointFile& file : manifest.files()) bytes += file.bytes();
  events_.Add(absl::StrFormat("checkpoint %d is on disk: %d samples, %.1f MB, in %.2f s (%s)", manifest.number(),
                              manifest.scheduler().progress().totals().samples(), static_cast<double>(bytes) / 1e6,
                              absl::ToDoubleSeconds(checkpoint_.took), manifest.reason()));
}

void Controller::FillCheckpoint(absl::Time now, wire::GetStatusReply& reply) const {
  const bool in_progress = checkpoint_.round || checkpoint_.to_commit;
  reply.set_checkpoint_in_progress(in_progress ? checkpoint_.last_number : 0);
  reply.set_checkpoint(checkpoint_.whole);
  reply.set_checkpoint_folder(checkpoint_.folder);
  if (checkpoint_.whole > 0) {
    reply.set_checkpoint_age_seconds(absl::ToDoubleSeconds(now - checkpoint_.whole_at));
  }
  reply.set_checkpoint_failed(checkpoint_.failed);
  reply.set_checkpoint_error(checkpoint_.error);
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
  if (layout_.elements != manifest.elements() || layout_.trained_elements != manifest.trained_elements()) {
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
  state::Progress progress = state.progress();
  progress.clear_workers();
  progress.clear_forgotten();
  progress_.Restore(progress);
  guarded_ = progress_.totals();
  RestoreEvaluations(state);
  evaluations_before_ = evaluations_.size();
  if (bound_ && state.has_staleness_bound()) bound_->Restore(state.staleness_bound());
  bound_changes_ = state.staleness_bound_changes();
  divergences_ = state.divergences();
  worker_deaths_ = state.worker_deaths();
  events_.GoOnFrom(state.events());
  elapsed_before_ = absl::Seconds(state.elapsed_s());
  goes_on_from_ = folder;
  checkpoint_.epochs = tasks_->ranges().epochs_done();
  checkpoint_.samples = progress_.totals().samples;
  checkpoint_.whole = manifest.number();
  checkpoint_.whole_at = time_.Now();
  checkpoint_.folder = folder;
  events_.Add(absl::StrFormat("goes on from checkpoint %d: %d samples, %d of %d epochs done, %.1f s trained",
                              manifest.number(), progress_.totals().samples, tasks_->ranges().epochs_done(),
                              config_.job.training().epochs(), state.elapsed_s()));
  return absl::OkStatus();
}

}  // namespace slackline::scheduler

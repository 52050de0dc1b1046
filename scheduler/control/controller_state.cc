// What outlives the scheduler: saved as a whole now and then, and gone on from when it is started again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/base/forgotten.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/state_check.h"

namespace slackline::scheduler {
namespace {

constexpr uint32_t kFormat = 1;
// Number of events that a restarted scheduler leaves out: those after the last save are more than the state says.
constexpr uint64_t kForgottenEvents = 1000;

double Seconds(absl::Duration duration) { return std::max(0.0, absl::ToDoubleSeconds(duration)); }

void Save(const Membership::State& from, absl::Time now, state::Members& state) {
  for (const auto& [id, worker] : from.workers) {
    state::Worker& out = *state.add_workers();
    out.set_worker(id.value());
    out.set_name(worker.name);
    out.set_incarnation(worker.incarnation.value());
    out.set_state(static_cast<uint32_t>(worker.state));
    out.set_first_clock(worker.first_clock.value());
    out.set_reason(worker.reason);
    if (worker.excused_until > now) out.set_excused_s(Seconds(worker.excused_until - now));
  }
  for (const auto& [id, server] : from.servers) {
    state::Server& out = *state.add_servers();
    out.set_server(id.value());
    out.set_name(server.name);
    out.set_address(server.address);
    out.set_incarnation(server.incarnation.value());
    out.set_state(static_cast<uint32_t>(server.state));
    out.set_reason(server.reason);
  }
  state.set_epoch(from.epoch.value());
  state.set_last_incarnation(from.last_incarnation.value());
  state.set_last_worker(from.last_worker.value());
  state.set_left_forgotten(static_cast<uint32_t>(from.left_forgotten));
  state.set_dead_forgotten(static_cast<uint32_t>(from.dead_forgotten));
}

Membership::State FromState(const state::Members& state, absl::Time now) {
  Membership::State members = {Epoch(state.epoch()),
                               Incarnation(state.last_incarnation()),
                               {},
                               {},
                               WorkerId(state.last_worker()),
                               state.left_forgotten(),
                               state.dead_forgotten()};
  for (const state::Worker& from : state.workers()) {
    Membership::Worker& worker = members.workers[WorkerId(from.worker())];
    worker.name = from.name();
    worker.incarnation = Incarnation(from.incarnation());
    worker.state = static_cast<WorkerState>(from.state());
    worker.first_clock = Clock64(from.first_clock());
    worker.reason = from.reason();
    if (from.excused_s() > 0) worker.excused_until = now + absl::Seconds(from.excused_s());
  }
  for (const state::Server& from : state.servers()) {
    Membership::Server& server = members.servers[ServerId(from.server())];
    server.name = from.name();
    server.address = from.address();
    server.incarnation = Incarnation(from.incarnation());
    server.state = static_cast<ServerState>(from.state());
    server.reason = from.reason();
  }
  return members;
}

}  // namespace

state::Scheduler Controller::Save(absl::Time wall_time) const {
  absl::MutexLock lock(&mutex_);
  return SaveLocked(wall_time);
}

void Controller::StateKept(const state::Scheduler& state) {
  absl::MutexLock lock(&mutex_);
  end_kept_ = end_kept_ || (state.job_state() != wire::JOB_STARTING && state.job_state() != wire::JOB_TRAINING);
  for (const auto& [server, actions] : backups_.Kept(state)) ShardsChanged(server, actions);
  moves_.Kept(state);
}

state::Scheduler Controller::SaveLocked(absl::Time wall_time) const {
  const absl::Time now = time_.Now();
  state::Scheduler state;
  state.set_format(kFormat);
  state.set_job(config_.id.value());
  state.set_fingerprint(config_.fingerprint);
  state.set_job_state(state_);
  state.set_reason(reason_);
  if (wall_time != absl::InfinitePast()) state.set_saved_unix_us(absl::ToUnixMicros(wall_time));
  state.set_elapsed_s(Seconds(began_ != absl::InfiniteFuture() ? now - began_ : elapsed_before_));
  if (trained_ != absl::InfiniteFuture()) state.set_trained_s(Seconds(trained_ - began_));
  if (first_worker_) *state.mutable_first_worker() = *first_worker_;
  state.set_data_kept(data_kept_);
  scheduler::Save(membership_.Save(), now, *state.mutable_members());
  for (state::Worker& worker : *state.mutable_members()->mutable_workers()) {
    const auto origin = origins_.find(WorkerId(worker.worker()));
    if (origin == origins_.end()) continue;
    worker.set_instance(origin->second.instance);
    worker.set_pid(origin->second.pid);
    worker.set_host(origin->second.host);
    worker.set_topology(origin->second.topology);
    worker.set_group(origin->second.group);
  }
  for (state::Server& server : *state.mutable_members()->mutable_servers()) {
    const ServerId id(server.server());
    server.set_durable(durable_.contains(id));
    if (const auto lost = lost_since_.find(id); lost != lost_since_.end()) {
      server.set_lost(true);
      server.set_lost_s(Seconds(now - lost->second));
    }
  }
  shards_.Save(state);
  if (tasks_) tasks_->Save(*state.mutable_tasks());
  progress_.Save(*state.mutable_progress());
  evaluations_.Save(state);
  *state.mutable_epochs() = epoch_book_.Save();
  watch_.Save(state);
  state.set_worker_deaths(worker_deaths_);
  state.set_events(events_.count());
  state.set_snapshot_folder(config_.snapshot_folder);
  state.set_checkpoint_folder(goes_on_from_);
  checkpoints_.Save(state);
  backups_.Save(state);
  moves_.Save(state);
  SaveMetrics(state);
  return state;
}

absl::Status Controller::Restore(const state::Scheduler& state, absl::Time wall_time) {
  if (state.format() != kFormat) {
    return absl::DataLossError(absl::StrCat("the saved state has format ", state.format(), "; known is ", kFormat));
  }
  if (state.job() != config_.id.value() || state.fingerprint() != config_.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the saved state is that of job %016x with fingerprint %016x; this is job %016x with %016x: go "
                        "on with the job file and the --set options that the run began with",
                        state.job(), state.fingerprint(), config_.id.value(), config_.fingerprint));
  }
  if (absl::Status sense = CheckState(state, config_.job); !sense.ok()) return sense;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  data_kept_ = state.data_kept();
  if (state.has_first_worker()) {
    if (absl::Status learnt = LearnModel(state.first_worker()); !learnt.ok()) return learnt;
    tasks_->Restore(state.tasks());
  }
  const job::Cluster& cluster = config_.job.cluster();
  if (state.has_placement()) {
    const auto shards = static_cast<size_t>(state.placement().servers_size());
    const ModelLayout& layout = shards_.layout();
    const size_t known = first_worker_ ? PlaceShards(layout.elements, {cluster.servers(), cluster.shards_per_server()},
                                                     {}, layout.frozen_from)
                                             .size()
                                       : 0;
    if (shards != known) {
      return absl::DataLossError(absl::StrCat("the saved state places ", shards, " shards; the job has ", known));
    }
  }
  state_ = state.job_state();
  reason_ = state.reason();
  const absl::Duration away = std::max(absl::ZeroDuration(), wall_time - absl::FromUnixMicros(state.saved_unix_us()));
  if (state_ != wire::JOB_STARTING) began_ = now - absl::Seconds(state.elapsed_s()) - away;
  if (state.has_trained_s()) trained_ = began_ + absl::Seconds(state.trained_s());
  if (Ended()) ended_ = now;
  end_kept_ = Ended();
  last_report_ = now;
  shards_.Restore(state, kForgottenMax);
  progress_.Restore(state.progress());
  watch_.Restore(state, progress_.totals());
  watch_.Begin(progress_.totals(), now);
  evaluations_.Restore(state, /*anew=*/false);
  epoch_book_.Restore(state.epochs());
  worker_deaths_ = state.worker_deaths();
  events_.GoOnFrom(state.events() + kForgottenEvents);
  goes_on_from_ = state.checkpoint_folder();
  elapsed_before_ = absl::Seconds(state.elapsed_s());
  checkpoints_.Restore(state, now);
  for (const state::Worker& worker : state.members().workers()) {
    origins_[WorkerId(worker.worker())] = {worker.instance(), worker.pid(),   worker.host(),
                                           worker.topology(), worker.group(), /*metrics=*/""};
  }
  RestoreMetrics(state);

  // Who hangs is found out from now on.
  if (tasks_) {
    for (const Holder& holder : tasks_->Holders()) work_since_[holder] = now;
  }
  MembershipActions actions;
  membership_.Restore(FromState(state.members(), now), Holders(), now, actions);
  if (state.has_placement()) membership_.SetPlaces(state.placement().places());
  if (first_worker_ && membership_.servers().size() == membership_.places()) {
    shards_.Place(cluster, {});
  }
  moves_.Restore(state, now);
  backups_.RestorePromoted(state);
  RestoreServers(state.members(), now);
  backups_.Restore(state, now);
  events_.Add(absl::StrFormat("the scheduler goes on with %d workers and %d servers, %.1f s after it had last saved",
                              membership_.CountLive() + membership_.CountIn(WorkerState::kJoining),
                              membership_.servers().size(), absl::ToDoubleSeconds(away)));
  Apply(actions);
  return absl::OkStatus();
}

void Controller::RestoreServers(const state::Members& members, absl::Time now) {
  for (const state::Server& from : members.servers()) {
    const ServerId id(from.server());
    // Its shards may have been on disk first after the last save: if they are not, it says so when it comes back.
    if (from.durable() || state_ == wire::JOB_TRAINING) durable_.insert(id);
    if (from.lost()) lost_since_[id] = now - absl::Seconds(from.lost_s());
    const Membership::Server& server = membership_.servers().at(id);
    if (server.state != ServerState::kLive) continue;
    servers_.Connect({id, server.incarnation}, server.name, server.address, *this);
    if (!Replicated() && !moves_.Takes(id)) moves_.SendNothingToTake({id, server.incarnation});
    // It has them already, or did not hear of it.
    if (shards_.placed()) SendInstall(id);
  }
}

std::vector<std::pair<WorkerId, Incarnation>> Controller::Holders() const {
  std::vector<std::pair<WorkerId, Incarnation>> holders;
  if (!tasks_) return holders;
  for (const Holder& holder : tasks_->Holders()) holders.emplace_back(holder.worker, holder.incarnation);
  return holders;
}

}  // namespace slackline::scheduler

// Controller: continues from a saved state.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/base/forgotten.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/saved_state.h"
#include "scheduler/control/state_check.h"

namespace slackline::scheduler {
namespace {

// Number of events that a restarted scheduler leaves out: those after the last save are more than the state says.
constexpr uint64_t kForgottenEvents = 1000;

}  // namespace

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
  if (state.format() != kStateFormat) {
    return absl::DataLossError(
        absl::StrCat("the saved state has format ", state.format(), "; known is ", kStateFormat));
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
  job_.data_kept = state.data_kept();
  if (state.has_first_worker()) {
    if (absl::Status learnt = LearnModel(state.first_worker()); !learnt.ok()) return learnt;
    job_.tasks->Restore(state.tasks());
  }
  const job::Cluster& cluster = config_.job.cluster();
  if (state.has_placement()) {
    const auto shards = static_cast<size_t>(state.placement().servers_size());
    const ModelLayout& layout = job_.shards.layout();
    const size_t known =
        job_.first_worker
            ? PlaceShards(layout.elements, {cluster.servers(), cluster.shards_per_server()}, {}, layout.frozen_from)
                  .size()
            : 0;
    if (shards != known) {
      return absl::DataLossError(absl::StrCat("the saved state places ", shards, " shards; the job has ", known));
    }
  }
  job_.phase.state = state.job_state();
  job_.phase.reason = state.reason();
  const absl::Duration away = std::max(absl::ZeroDuration(), wall_time - absl::FromUnixMicros(state.saved_unix_us()));
  if (job_.phase.state != wire::JOB_STARTING) job_.phase.began = now - absl::Seconds(state.elapsed_s()) - away;
  if (state.has_trained_s()) job_.phase.trained = job_.phase.began + absl::Seconds(state.trained_s());
  if (job_.phase.Ended()) job_.phase.ended = now;
  job_.phase.end_kept = job_.phase.Ended();
  job_.last_report = now;
  job_.shards.Restore(state, kForgottenMax);
  job_.progress.Restore(state.progress());
  job_.watch.Restore(state, job_.progress.totals());
  job_.watch.Begin(job_.progress.totals(), now);
  job_.evaluations.Restore(state, /*anew=*/false);
  job_.epoch_book.Restore(state.epochs());
  job_.workers.deaths = state.worker_deaths();
  job_.events.GoOnFrom(state.events() + kForgottenEvents);
  job_.goes_on_from = state.checkpoint_folder();
  job_.phase.elapsed_before = absl::Seconds(state.elapsed_s());
  job_.checkpoints.Restore(state, now);
  for (const state::Worker& worker : state.members().workers()) {
    job_.workers.origins[WorkerId(worker.worker())] = {worker.instance(), worker.pid(),   worker.host(),
                                                       worker.topology(), worker.group(), /*metrics=*/""};
  }
  RestoreMetrics(state);

  // Stalls count from now on.
  if (job_.tasks) {
    for (const Holder& holder : job_.tasks->Holders()) job_.workers.work_since[holder] = now;
  }
  MembershipActions actions;
  job_.membership.Restore(MembersFromState(state.members(), now), job_.Holders(), now, actions);
  if (state.has_placement()) job_.membership.SetPlaces(state.placement().places());
  if (job_.first_worker && job_.membership.servers().size() == job_.membership.places()) {
    job_.shards.Place(cluster, {});
  }
  job_.moves.Restore(state, now);
  job_.backups.RestorePromoted(state);
  RestoreServers(state.members(), now);
  job_.backups.Restore(state, now);
  job_.events.Add(
      absl::StrFormat("the scheduler goes on with %d workers and %d servers, %.1f s after it had last saved",
                      job_.membership.CountLive() + job_.membership.CountIn(WorkerState::kJoining),
                      job_.membership.servers().size(), absl::ToDoubleSeconds(away)));
  course_.Apply(actions);
  return absl::OkStatus();
}

void Controller::RestoreServers(const state::Members& members, absl::Time now) {
  for (const state::Server& from : members.servers()) {
    const ServerId id(from.server());
    // Its shards may have been on disk first after the last save: if they are not, it says so when it comes back.
    if (from.durable() || job_.phase.state == wire::JOB_TRAINING) job_.servers.durable.insert(id);
    if (from.lost()) job_.servers.lost_since[id] = now - absl::Seconds(from.lost_s());
    const Membership::Server& server = job_.membership.servers().at(id);
    if (server.state != ServerState::kLive) continue;
    job_.calls.Connect({id, server.incarnation}, server.name, server.address, *this);
    if (!job_.Replicated() && !job_.moves.Takes(id)) job_.moves.SendNothingToTake({id, server.incarnation});
    // The server has its shards already, or did not hear of them before the scheduler died.
    if (job_.shards.placed()) course_.SendInstall(id);
  }
}

void Controller::RestoreMetrics(const state::Scheduler& state) {
  job_.servers.metrics.insert(state.server_metrics().begin(), state.server_metrics().end());
  for (const auto& [id, address] : state.worker_metrics()) {
    if (const auto origin = job_.workers.origins.find(WorkerId(id)); origin != job_.workers.origins.end())
      origin->second.metrics = address;
  }
}

}  // namespace slackline::scheduler

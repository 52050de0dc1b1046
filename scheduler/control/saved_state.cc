#include "scheduler/control/saved_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/job/job_kinds.h"
#include "scheduler/base/forgotten.h"
#include "scheduler/control/job_checkpoints.h"
#include "scheduler/control/state_check.h"

namespace slackline::scheduler {
namespace {

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

Membership::State MembersFromState(const state::Members& state, absl::Time now) {
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

void RestoreServers(const state::Members& members, absl::Time now, RunningJob& job, JobCourse& course,
                    ServerObserver& observer) {
  for (const state::Server& from : members.servers()) {
    const ServerId id(from.server());
    // Its shards may have been on disk first after the last save: if they are not, it says so when it comes back.
    if (from.durable() || job.phase.state == wire::JOB_TRAINING) job.servers.durable.insert(id);
    if (from.lost()) job.servers.lost_since[id] = now - absl::Seconds(from.lost_s());
    const Membership::Server& server = job.membership.servers().at(id);
    if (server.state != ServerState::kLive) continue;
    job.calls.Connect({id, server.incarnation}, server.name, server.address, observer);
    if (!job.Replicated() && !job.moves.Takes(id)) job.moves.SendNothingToTake({id, server.incarnation});
    // The server has its shards already, or did not hear of them before the scheduler died.
    if (job.shards.placed()) course.SendInstall(id);
  }
}

}  // namespace

state::Scheduler SaveState(const RunningJob& job, absl::Time wall_time) {
  const absl::Time now = job.time.Now();
  state::Scheduler state;
  state.set_format(kStateFormat);
  state.set_job(job.config.id.value());
  state.set_fingerprint(job.config.fingerprint);
  state.set_job_state(job.phase.state);
  state.set_reason(job.phase.reason);
  if (wall_time != absl::InfinitePast()) state.set_saved_unix_us(absl::ToUnixMicros(wall_time));
  state.set_elapsed_s(
      Seconds(job.phase.began != absl::InfiniteFuture() ? now - job.phase.began : job.phase.elapsed_before));
  if (job.phase.trained != absl::InfiniteFuture()) state.set_trained_s(Seconds(job.phase.trained - job.phase.began));
  if (job.first_worker) *state.mutable_first_worker() = *job.first_worker;
  state.set_data_kept(job.data_kept);
  state.set_optimizer_awaited(job.optimizer_awaited);
  scheduler::Save(job.membership.Save(), now, *state.mutable_members());
  for (state::Worker& worker : *state.mutable_members()->mutable_workers()) {
    const auto origin = job.workers.origins.find(WorkerId(worker.worker()));
    if (origin == job.workers.origins.end()) continue;
    worker.set_instance(origin->second.instance);
    worker.set_pid(origin->second.pid);
    worker.set_host(origin->second.host);
    worker.set_topology(origin->second.topology);
    worker.set_group(origin->second.group);
  }
  for (state::Server& server : *state.mutable_members()->mutable_servers()) {
    const ServerId id(server.server());
    server.set_durable(job.servers.durable.contains(id));
    if (const auto lost = job.servers.lost_since.find(id); lost != job.servers.lost_since.end()) {
      server.set_lost(true);
      server.set_lost_s(Seconds(now - lost->second));
    }
  }
  job.shards.Save(state);
  if (job.tasks) job.tasks->Save(*state.mutable_tasks());
  job.progress.Save(*state.mutable_progress());
  job.evaluations.Save(state);
  *state.mutable_epochs() = job.epoch_book.Save();
  job.watch.Save(state);
  state.set_worker_deaths(job.workers.deaths);
  state.set_events(job.events.count());
  state.set_snapshot_folder(job.config.snapshot_folder);
  state.set_checkpoint_folder(job.goes_on_from);
  job.checkpoints.Save(state);
  job.backups.Save(state);
  job.moves.Save(state);
  state.mutable_server_metrics()->insert(job.servers.metrics.begin(), job.servers.metrics.end());
  state.mutable_server_minors()->insert(job.servers.minors.begin(), job.servers.minors.end());
  for (const auto& [id, origin] : job.workers.origins) (*state.mutable_worker_metrics())[id.value()] = origin.metrics;
  return state;
}

absl::Status RestoreState(const state::Scheduler& state, absl::Time wall_time, RunningJob& job, JobCourse& course,
                          ServerObserver& observer) {
  if (state.format() != kStateFormat) {
    return absl::DataLossError(
        absl::StrCat("the saved state has format ", state.format(), "; known is ", kStateFormat));
  }
  if (state.job() != job.config.id.value() || state.fingerprint() != job.config.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the saved state is that of job %016x with fingerprint %016x; this is job %016x with %016x: go "
                        "on with the job file and the --set options that the run began with",
                        state.job(), state.fingerprint(), job.config.id.value(), job.config.fingerprint));
  }
  if (absl::Status sense = CheckState(state, job.config.job); !sense.ok()) return sense;
  const absl::Time now = job.time.Now();
  job.data_kept = state.data_kept();
  if (state.has_first_worker()) {
    if (absl::Status learnt = course.LearnModel(state.first_worker()); !learnt.ok()) return learnt;
    job.optimizer_awaited = state.optimizer_awaited();
    job.tasks->Restore(state.tasks());
  }
  const job::Cluster& cluster = job.config.job.cluster();
  if (state.has_placement()) {
    const auto shards = static_cast<size_t>(state.placement().servers_size());
    const ModelLayout& layout = job.shards.layout();
    const size_t known =
        job.first_worker
            ? PlaceShards(layout.elements, {cluster.servers(), cluster.shards_per_server()}, {}, layout.frozen_from)
                  .size()
            : 0;
    if (shards != known) {
      return absl::DataLossError(absl::StrCat("the saved state places ", shards, " shards; the job has ", known));
    }
  }
  job.phase.state = state.job_state();
  job.phase.reason = state.reason();
  const absl::Duration away = std::max(absl::ZeroDuration(), wall_time - absl::FromUnixMicros(state.saved_unix_us()));
  if (job.phase.state != wire::JOB_STARTING) job.phase.began = now - absl::Seconds(state.elapsed_s()) - away;
  if (state.has_trained_s()) job.phase.trained = job.phase.began + absl::Seconds(state.trained_s());
  if (job.phase.Ended()) job.phase.ended = now;
  job.phase.end_kept = job.phase.Ended();
  job.last_report = now;
  job.shards.Restore(state, kForgottenMax);
  job.progress.Restore(state.progress());
  job.watch.Restore(state, job.progress.totals());
  job.watch.Begin(job.progress.totals(), now);
  job.evaluations.Restore(state, /*anew=*/false);
  job.epoch_book.Restore(state.epochs());
  job.workers.deaths = state.worker_deaths();
  job.events.GoOnFrom(state.events() + kForgottenEvents);
  job.goes_on_from = state.checkpoint_folder();
  job.phase.elapsed_before = absl::Seconds(state.elapsed_s());
  job.checkpoints.Restore(state, now);
  for (const state::Worker& worker : state.members().workers()) {
    job.workers.origins[WorkerId(worker.worker())] = {worker.instance(), worker.pid(),   worker.host(),
                                                      worker.topology(), worker.group(), /*metrics=*/""};
  }
  job.servers.metrics.insert(state.server_metrics().begin(), state.server_metrics().end());
  job.servers.minors.insert(state.server_minors().begin(), state.server_minors().end());
  for (const auto& [id, address] : state.worker_metrics()) {
    if (const auto origin = job.workers.origins.find(WorkerId(id)); origin != job.workers.origins.end())
      origin->second.metrics = address;
  }
  // Stalls count from now on.
  if (job.tasks) {
    for (const Holder& holder : job.tasks->Holders()) job.workers.work_since[holder] = now;
  }
  MembershipActions actions;
  job.membership.Restore(MembersFromState(state.members(), now), job.Holders(), now, actions);
  if (state.has_placement()) job.membership.SetPlaces(state.placement().places());
  if (job.ModelKnown() && job.membership.servers().size() == job.membership.places()) {
    job.shards.Place(cluster, {});
  }
  job.moves.Restore(state, now);
  job.backups.RestorePromoted(state);
  RestoreServers(state.members(), now, job, course, observer);
  job.backups.Restore(state, now);
  job.events.Add(absl::StrFormat("the scheduler goes on with %d workers and %d servers, %.1f s after it had last saved",
                                 job.membership.CountLive() + job.membership.CountIn(WorkerState::kJoining),
                                 job.membership.servers().size(), absl::ToDoubleSeconds(away)));
  course.Apply(actions);
  return absl::OkStatus();
}

absl::Status GoOnFromCheckpoint(const checkpoint::Manifest& manifest, const std::string& folder, RunningJob& job,
                                JobCourse& course) {
  const state::Scheduler& state = manifest.scheduler();
  if (state.tasks().ranges().next_epoch() > job.config.job.training().epochs()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of epoch ", state.tasks().ranges().next_epoch(),
                                                      "; training.epochs is ", job.config.job.training().epochs()));
  }
  if (manifest.seed() != job.config.job.seed()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is of a run with seed ", manifest.seed(),
                                                      ", which says the ", "order of the ", SamplesNoun(job.config.job),
                                                      "; found seed ", job.config.job.seed()));
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
  if (absl::Status sense = CheckState(work, job.config.job); !sense.ok()) return sense;
  SLACKLINE_CHECK(job.phase.state == wire::JOB_STARTING && job.membership.servers().empty());
  // A script may give other settings of the optimizer than in the run before, as a job file may.
  wire::RegisterWorkerRequest first = state.first_worker();
  ForgetOptimizer(first);
  if (absl::Status learnt = course.LearnModel(first); !learnt.ok()) return learnt;
  job.optimizer_awaited = RunsScripts(job.config.job);
  if (job.shards.layout().elements != manifest.elements() ||
      job.shards.layout().trained_elements != manifest.trained_elements()) {
    return absl::DataLossError(absl::StrCat(folder, ": its model and its shards contradict each other"));
  }
  job.data_kept = job.first_worker->data_fingerprint();
  if (job.data_kept != 0 && job.config.job.data().replaces() == FingerprintText(job.data_kept)) {
    job.events.Add("other training data take the place of those of the checkpoint, as data.replaces says");
    job.data_kept = 0;
    job.first_worker->clear_data_fingerprint();
  }
  job.tasks->GoOnFrom(state.tasks());
  if (job.tasks->Complete()) {
    return absl::FailedPreconditionError(
        absl::StrCat("all ", job.config.job.training().epochs(), " epochs are done in ", folder,
                     "; to train on, add epochs: --set training.epochs=", job.config.job.training().epochs() + 1));
  }
  // Numbers go on from those of the earlier members, so that nobody is taken for one of them.
  MembershipActions none;
  Membership::State numbers;
  numbers.epoch = Epoch(state.members().epoch());
  numbers.last_incarnation = Incarnation(state.members().last_incarnation());
  job.membership.Restore(std::move(numbers), {}, job.time.Now(), none);
  std::map<WorkerId, std::string> names;
  for (const state::Worker& worker : state.members().workers()) names[WorkerId(worker.worker())] = worker.name();
  job.progress.Resume(state.progress(), names);
  job.watch.Restore(state, job.progress.totals());
  job.evaluations.Restore(state, /*anew=*/true);
  job.epoch_book.Restore(state.epochs());
  job.workers.deaths = state.worker_deaths();
  job.events.GoOnFrom(state.events());
  job.phase.elapsed_before = absl::Seconds(state.elapsed_s());
  job.goes_on_from = folder;
  job.checkpoints.GoOnFrom(manifest, folder, CheckpointFacts(job, job.time.Now()));
  job.events.Add(absl::StrFormat("goes on from checkpoint %d: %d samples, %d of %d epochs done, %.1f s trained",
                                 manifest.number(), job.progress.totals().samples(), job.tasks->ranges().epochs_done(),
                                 job.config.job.training().epochs(), state.elapsed_s()));
  return absl::OkStatus();
}

}  // namespace slackline::scheduler

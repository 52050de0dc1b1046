#include "scheduler/control/saved_state.h"

#include <algorithm>

namespace slackline::scheduler {
namespace {

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

}  // namespace

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
  for (const auto& [id, origin] : job.workers.origins) (*state.mutable_worker_metrics())[id.value()] = origin.metrics;
  return state;
}

}  // namespace slackline::scheduler

#include "scheduler/control/job_course.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/protocol_version.h"
#include "common/base/slowdown.h"
#include "common/job/push_samples.h"
#include "common/job/script_optimizer.h"
#include "common/text/counted.h"
#include "scheduler/control/job_reports.h"
#include "scheduler/control/job_status.h"

namespace slackline::scheduler {
namespace {

Tasks::Config TasksConfig(const RunningJob& running) {
  const job::Job& job = running.config.job;
  Tasks::Config tasks;
  tasks.ranges.samples_per_epoch = running.shards.layout().train_samples;
  tasks.ranges.block_samples = running.shards.layout().block_samples;
  tasks.ranges.seed = job.seed();
  tasks.ranges.epochs = job.training().epochs();
  // Whole pushes.
  tasks.ranges.batch_size = running.RangeUnit(job.training().batch_size());
  if (job.local().steps() > 0 && job.local().lease_s() == 0) {
    tasks.ranges.first_batches = std::max(1u, tasks.ranges.first_batches / job.local().steps());
  } else if (TrainsLocally(job)) {
    // A range is one round.
    tasks.ranges.first_batches = 1;
    tasks.ranges.range_duration = absl::ZeroDuration();
  }
  tasks.evaluate_every_epochs = job.training().evaluate_every_epochs();
  if (const uint64_t every = job.training().evaluate_every_samples(); every > 0) {
    // Ranges have each image once.
    tasks.evaluate_every_samples = std::max<uint64_t>(1, every / PassesOfPush(job));
  }
  return tasks;
}

// Returns false for a server that would read a change of the set of workers as a whole set.
bool TakesMemberChanges(const RunningJob& job, ServerId id) {
  const auto server = job.membership.servers().find(id);
  if (server == job.membership.servers().end()) return false;
  const auto minor = job.servers.minors.find(server->second.name);
  return minor != job.servers.minors.end() && minor->second >= kMinorOfMemberChanges;
}

}  // namespace

void JobCourse::Apply(const MembershipActions& actions) {
  for (const MembershipAction& action : actions) {
    std::visit([this](const auto& what) { Act(what); }, action);
  }
  BeginIfReady();
}

void JobCourse::Act(const SendMembersAction& action) {
  wire::SetMembersRequest request;
  request.set_job(job_.config.id.value());
  request.set_generation(job_.shards.GenerationOf(action.server).value());
  request.set_epoch(action.epoch.value());
  request.set_server_incarnation(action.server_incarnation.value());
  const bool whole = !action.since || !TakesMemberChanges(job_, action.server);
  if (!whole) {
    request.set_since_epoch(action.since->value());
    for (const WorkerId worker : action.gone) request.add_gone(worker.value());
  }
  for (const MemberRef& member : whole ? job_.membership.Members() : action.members) {
    wire::Member& spec = *request.add_members();
    spec.set_worker(member.worker.value());
    spec.set_incarnation(member.incarnation.value());
    spec.set_name(member.name);
  }
  if (job_.watch.bound()) request.set_staleness_bound(*job_.watch.bound());
  job_.calls.SetMembers({action.server, action.server_incarnation}, request);
}

void JobCourse::Act(const WorkerLiveAction& action) {
  job_.events.Add(absl::StrCat(job_.NameOf(action.worker), " is live from clock ", action.first_clock.value()));
}

void JobCourse::Act(const WorkerFencedAction& action) {
  const Holder holder = {action.worker, action.incarnation};
  const uint64_t samples =
      job_.tasks ? job_.tasks->Fenced(holder, static_cast<uint32_t>(job_.shards.places().size())) : 0;
  if (samples == 0 || job_.phase.Ended()) return;
  job_.events.Add(
      absl::StrCat("the ", Counted(samples, "sample"), " that ", job_.NameOf(action.worker), " held go to others"));
}

void JobCourse::Act(const WorkerDeadAction& action) {
  WorkerGone({action.worker, action.incarnation});
  if (job_.phase.Ended()) return;
  ++job_.workers.deaths;
  job_.events.Add(absl::StrCat(job_.NameOf(action.worker), " is dead: ", action.reason), job_.exit_audience);
}

void JobCourse::Act(const ServerDeadAction& action) {
  job_.checkpoints.ServerLost(action.server);
  if (job_.phase.Ended()) return;
  job_.moves.ServerLost(action.server, job_.Facts());
  const Membership::Server& server = job_.membership.servers().at(action.server);
  const absl::Time now = job_.time.Now();
  const std::string what =
      absl::StrCat(Called("server", server.name), " (", server.address, ") is dead: ", action.reason,
                   "; its last heartbeat came ", Readable(now - server.heard), " ago");
  if (job_.backups.TakeOver(action.server, job_.Facts())) {
    job_.servers.lost_since.try_emplace(action.server, now);
    return;
  }
  if (job_.Replicated() && job_.phase.state == wire::JOB_TRAINING) {
    return End(wire::JOB_FAILED, absl::StrCat(what, ", and no backup has all that it has answered"));
  }
  if (!job_.MayComeBack(action.server)) {
    const char* const early = job_.config.snapshot_folder.empty()      ? ""
                              : job_.phase.state == wire::JOB_STARTING ? "; training had not begun yet"
                                                                       : "; its shards were not on disk yet";
    return End(wire::JOB_FAILED, absl::StrCat(what, early));
  }
  // From the first of several deaths on, until its shards are back.
  job_.servers.lost_since.try_emplace(action.server, now);
  job_.calls.Disconnect({action.server, action.incarnation});
  job_.events.Add(absl::StrCat(what, "; training waits up to ", absl::FormatDuration(job_.ServerReturn()),
                               " for it to come back and go on from its snapshots"));
}

void JobCourse::WorkerGone(const Holder& holder) {
  TrainsNoMore(job_, holder);
  job_.workers.work_since.erase(holder);
  job_.workers.measured.erase(holder);
  job_.room.WorkerGone(holder);
  if (job_.tasks) job_.tasks->Gone(holder);
}

absl::Status JobCourse::LearnModel(const wire::RegisterWorkerRequest& request) {
  if (job_.first_worker) {
    if (absl::Status same = CheckSame(*job_.first_worker, request); !same.ok()) return same;
    if (absl::Status kept = CheckDataKept(job_.data_kept, job_.goes_on_from, request); !kept.ok()) return kept;
    if (absl::Status optimizer = LearnOptimizer(request); !optimizer.ok()) return optimizer;
    if (job_.first_worker->data_fingerprint() == 0) job_.first_worker->set_data_fingerprint(request.data_fingerprint());
    return absl::OkStatus();
  }
  absl::StatusOr<ModelLayout> layout = LayoutOf(request, job_.config.job);
  if (!layout.ok()) return layout.status();
  job_.first_worker = request;
  job_.first_worker->clear_version();  // of this process, not of the model
  job_.shards.SetLayout(*layout);
  job_.tasks.emplace(TasksConfig(job_));
  return absl::OkStatus();
}

absl::Status JobCourse::LearnOptimizer(const wire::RegisterWorkerRequest& request) {
  if (!job_.optimizer_awaited) return CheckSameOptimizer(*job_.first_worker, request);
  absl::StatusOr<ModelLayout> layout = LayoutOf(request, job_.config.job);
  if (!layout.ok()) return layout.status();
  job_.first_worker->set_name(request.name());
  if (request.has_optimizer()) *job_.first_worker->mutable_optimizer() = request.optimizer();
  *job_.first_worker->mutable_tensors() = request.tensors();
  job_.shards.SetLayout(*std::move(layout));
  job_.optimizer_awaited = false;
  return absl::OkStatus();
}

void JobCourse::Place() {
  if (job_.shards.placed() || !job_.ModelKnown() || !job_.membership.AllServersPresent()) return;
  const job::Cluster& cluster = job_.config.job.cluster();
  const std::map<ServerId, double> shares = job_.moves.Shares();
  job_.shards.Place(cluster, shares);
  const ModelLayout& layout = job_.shards.layout();
  const size_t shards = job_.shards.places().size();
  const uint64_t frozen = layout.frozen_from == 0 ? 0 : layout.elements - layout.frozen_from;
  job_.events.Add(absl::StrCat("the model has ", layout.trained_elements, " parameters and ",
                               layout.elements - frozen - layout.trained_elements, " averaged values, ",
                               frozen == 0 ? "" : absl::StrCat("and ", frozen, " that are frozen, "), "in ", shards,
                               " shards on ", cluster.servers(), cluster.servers() == 1 ? " server" : " servers"));
  if (shards < cluster.servers()) {
    return End(wire::JOB_FAILED, absl::StrCat("the model has ", layout.elements, " elements, and a server takes ",
                                              kShardAlignment, " of them at least: found cluster.servers: ",
                                              cluster.servers(), "; allowed is 1 to ", shards, " with this model"));
  }
  if (layout.optimizer) {
    job_.events.Add(absl::StrCat("the optimizer is that of the script: ", OptimizerText(*layout.optimizer)));
  }
  if (!shares.empty()) TellShares(shares);
  for (const std::string& doubt :
       {SlowdownDoubt(job_.config.job), FewSamplesDoubt(job_.config.job, layout.train_samples)}) {
    if (!doubt.empty()) job_.events.Add(absl::StrCat("warning: ", doubt));
  }
  for (const auto& [id, server] : job_.membership.servers()) SendInstall(id);
}

void JobCourse::TellShares(const std::map<ServerId, double>& shares) {
  std::map<ServerId, size_t> shards;
  for (const ShardPlace& place : job_.shards.places()) ++shards[place.server];
  std::vector<std::string> parts;
  for (const auto& [id, share] : shares) {
    parts.push_back(
        absl::StrFormat("%s %d (%g Gbit/s)", job_.membership.servers().at(id).name, shards[id], share / 1000));
  }
  job_.events.Add(absl::StrCat("shards go by the links of the servers: ", absl::StrJoin(parts, ", ")),
                  Audience::kRecord);
}

void JobCourse::SendInstall(ServerId server) {
  if (job_.moves.AwaitsGivingUp(server)) return;
  const Incarnation incarnation = job_.membership.servers().at(server).incarnation;
  wire::InstallShardsRequest request = job_.shards.InstallRequest(server, incarnation);
  request.set_snapshot_folder(job_.config.snapshot_folder);
  // The generation has risen with every restore, so that no two have one lineage.
  if (const Generation again = job_.shards.GenerationOf(server); again != kFirstGeneration) {
    request.set_restore_lineage(static_cast<uint32_t>(again.value()));
    request.set_moves(job_.shards.moved() && !job_.Replicated());
  }
  request.set_replicated(job_.Replicated());
  request.set_promote(job_.backups.Promoted(server));
  request.set_checkpoint_folder(job_.goes_on_from);
  job_.calls.Install({server, incarnation}, request);
  job_.backups.Install(server);
}

void JobCourse::Installed(ServerRef server, const wire::InstallShardsReply& reply) {
  if (job_.shards.layout().optimizer && !reply.takes_optimizer()) {
    return Refused(server, absl::FailedPreconditionError(
                               "it speaks a protocol older than 1.3, and would not use the optimizer that the script "
                               "gives: start servers of this version, or name the optimizer in the job file"));
  }
  auto found = job_.membership.servers().find(server.server);
  if (found == job_.membership.servers().end() || found->second.incarnation != server.incarnation) return;
  if (found->second.state != ServerState::kLive) return;  // it was given up meanwhile
  if (job_.backups.Promoting(server.server)) return;      // that was what it was told before
  job_.shards.SetInstalled(server.server);
  if (const auto lost = job_.servers.lost_since.find(server.server); lost != job_.servers.lost_since.end()) {
    job_.events.Add(absl::StrCat(Called("server", found->second.name),
                                 job_.Replicated() ? " has taken over, " : " goes on from its snapshots, ",
                                 Readable(job_.time.Now() - lost->second),
                                 job_.Replicated() ? " after the other was found dead" : " after it died"));
    job_.servers.lost_since.erase(lost);
    NoteRestored(job_, server.server, reply);
  }
  job_.moves.Installed(server.server, job_.Facts());
  BeginIfReady();
}

void JobCourse::MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) {
  // A reply for the shards that the server had before does not count: it must take the set with its present ones.
  if (reply.generation() != 0 && Generation(reply.generation()) != job_.shards.GenerationOf(server.server)) return;
  if (job_.tasks) {
    for (const wire::FencedWorker& worker : reply.fenced()) job_.tasks->FencedParts(server.server, worker);
  }
  MembershipActions actions;
  job_.membership.MembersInstalled(server.server, server.incarnation, Epoch(reply.epoch()),
                                   Clock64(reply.clock_min_largest()), actions);
  Apply(actions);
}

void JobCourse::Stopped(ServerRef server) {
  if (job_.IsSpare(server)) {
    job_.Spares().erase(server.server);
  } else if (const auto member = job_.membership.servers().find(server.server);
             member != job_.membership.servers().end() && member->second.incarnation == server.incarnation) {
    job_.servers.stopped.insert(server.server);
  } else {
    job_.calls.Disconnect(server);  // drained
  }
}

void JobCourse::Refused(ServerRef server, const absl::Status& status) {
  if (job_.IsSpare(server)) return DropSpare(server.server, std::string(status.message()));
  auto found = job_.membership.servers().find(server.server);
  if (found == job_.membership.servers().end() || found->second.incarnation != server.incarnation) return;
  // A server that refuses calls cannot be told to stop, so nobody waits for it.
  job_.servers.stopped.insert(server.server);
  if (found->second.state != ServerState::kLive && !job_.phase.Ended()) return;  // it was given up meanwhile
  End(wire::JOB_FAILED, absl::StrCat(Called("server", found->second.name),
                                     " refused a call of the scheduler: ", std::string(status.message())));
}

void JobCourse::BeginIfReady() {
  if (job_.phase.state != wire::JOB_STARTING) return;
  // Thousands register one after the other: the whole list of what is missing is for people.
  if (job_.membership.CountLive() < job_.config.job.cluster().workers() || !Missing(job_).empty()) return;
  job_.phase.state = wire::JOB_TRAINING;
  const absl::Time now = job_.time.Now();
  job_.phase.began = now - job_.phase.elapsed_before;
  job_.last_report = now;
  job_.watch.Begin(job_.progress.totals(), now);
  job_.checkpoints.TrainingBegins(now);
  job_.events.Add(absl::StrCat("training begins with ", Counted(job_.membership.CountLive(), "worker"), " on ",
                               Counted(job_.shards.layout().train_samples, "sample"), " for ",
                               Counted(job_.config.job.training().epochs(), "epoch")));
  // Servers that go on from a checkpoint may have been ready before the workers.
  AnnounceDurable();
}

void JobCourse::AnnounceDurable() {
  if (job_.phase.state != wire::JOB_TRAINING || job_.servers.durable.size() != job_.membership.places()) return;
  job_.events.Add("all shards are on disk: from now on a server that dies can come back");
}

absl::StatusOr<ServerRef> JobCourse::RegisterSpare(const wire::RegisterServerRequest& request) {
  if (!job_.Replicated()) return job_.moves.Register(request, job_.Facts());
  absl::StatusOr<ServerRef> backup = job_.backups.Register(request, job_.Facts());
  if (backup.ok()) BeginIfReady();
  return backup;
}

void JobCourse::DropSpare(ServerId server, const std::string& why) {
  if (job_.Replicated()) return job_.backups.Drop(server, why, job_.Facts());
  job_.moves.Drop(server, why, job_.Facts());
}

void JobCourse::ShardsChanged(ServerId server, const MembershipActions& actions) {
  SendInstall(server);  // before the members
  Apply(actions);
}

void JobCourse::GotShards(ServerId server, ServerId from) {
  job_.servers.progress[server].set_seeded(true);
  if (job_.servers.durable.contains(from)) job_.servers.durable.insert(server);
}

void JobCourse::ServerLeft(ServerId server, const MembershipActions& actions) {
  for (auto* set : {&job_.servers.durable, &job_.servers.stopped}) set->erase(server);
  job_.servers.progress.erase(server);
  job_.servers.lost_since.erase(server);
  Apply(actions);
}

void JobCourse::End(wire::JobState state, const std::string& reason) {
  if (job_.phase.Ended()) return;
  const bool trained = job_.phase.state == wire::JOB_TRAINING;
  job_.phase.ended = job_.time.Now();
  if (trained && job_.progress.totals().samples() > job_.progress.latest().totals.samples())
    AddReport(job_, job_.phase.ended);
  job_.phase.state = state;
  job_.phase.reason = reason;
  const absl::string_view how = state == wire::JOB_DONE ? "done" : state == wire::JOB_FAILED ? "failed" : "stopped";
  job_.events.Add(absl::StrFormat("the job is %s: %s", how, reason));
}

}  // namespace slackline::scheduler

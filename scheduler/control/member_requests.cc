#include "scheduler/control/member_requests.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/address.h"
#include "common/base/protocol_version.h"
#include "common/job/push_samples.h"
#include "common/text/counted.h"
#include "common/text/member_name.h"
#include "scheduler/control/job_checkpoints.h"
#include "scheduler/control/job_reports.h"
#include "scheduler/control/job_status.h"

namespace slackline::scheduler {
namespace {

// Time after which a worker that has nothing to do asks again, in T.
constexpr int kStandbyRetryHeartbeats = 1;

wire::WorkerState ToWire(WorkerState state) {
  switch (state) {
    case WorkerState::kLive:
      return wire::WORKER_LIVE;
    case WorkerState::kStandby:
      return wire::WORKER_STANDBY;
    default:
      return wire::WORKER_JOINING;
  }
}

WorkerOrigin OriginOf(const wire::RegisterWorkerRequest& request) {
  return {request.instance(), request.pid(),   request.host(),
          request.topology(), request.group(), request.metrics_address()};
}

bool IsThere(WorkerState state) { return state != WorkerState::kLeft && state != WorkerState::kDead; }

std::string WhyComplete(const Tasks& tasks, uint32_t epochs) {
  const DataRanges& ranges = tasks.ranges();
  if (!ranges.cut_short()) return "training is complete";
  if (tasks.StreamEnded()) return "training is complete: the stream is read to its end";
  return absl::StrCat("training has ended early, after ", ranges.epochs_done(), " of ", Counted(epochs, "epoch"));
}

absl::Status CheckJob(const JobConfig& config, uint64_t job) {
  if (job == config.id.value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat("this is job %016x (%s), the request names job %016x",
                                                       config.id.value(), config.job.name(), job));
}

void NoteProtocol(RunningJob& job, const std::string& who, const ProtocolVersion& theirs) {
  if (std::string newer = NewerProtocol(who, theirs); !newer.empty()) job.events.Add(std::move(newer));
}

// Returns an error while a server of this name lives, or may soon be found dead.
absl::Status CheckNoNamesake(const RunningJob& job, const std::string& name) {
  const absl::Time now = job.time.Now();
  const auto check = [&](const std::string& there, const std::string& address, absl::Time heard) {
    if (there != name || now - heard > job.config.timeouts.server_dead()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        Called("server", name), " is there already, at ", address, ": its last heartbeat came ", Readable(now - heard),
        " ago; allowed is another name, or this one when nothing was heard of it for ",
        Readable(job.config.timeouts.server_dead())));
  };
  absl::Status status;
  for (const auto& [id, server] : job.membership.servers()) {
    if (server.state == ServerState::kLive) status.Update(check(server.name, server.address, server.heard));
  }
  for (const auto& [id, spare] : job.Spares()) status.Update(check(spare.name, spare.address, spare.heard));
  return status;
}

void NoteServer(RunningJob& job, const wire::RegisterServerRequest& request) {
  std::set<std::string> names = {request.name()};
  for (const auto& [id, server] : job.membership.servers()) names.insert(server.name);
  for (const auto& [id, spare] : job.Spares()) names.insert(spare.name);
  const auto is_gone = [&](const auto& entry) { return !names.contains(entry.first); };
  std::erase_if(job.servers.metrics, is_gone);
  std::erase_if(job.servers.minors, is_gone);
  job.servers.metrics[request.name()] = request.metrics_address();
  job.servers.minors[request.name()] = ProtocolOf(request).minor;
}

}  // namespace

absl::Status CheckFingerprint(const JobConfig& config, const std::string& who, uint64_t fingerprint) {
  if (fingerprint == config.fingerprint) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s was started with another job file than the scheduler (fingerprint %016x, the scheduler's is %016x): start it "
      "with the scheduler's job file and the same --set options",
      who, fingerprint, config.fingerprint));
}

absl::StatusOr<wire::RegisterServerReply> MemberRequests::RegisterServer(const wire::RegisterServerRequest& request) {
  if (const std::string mistake = MemberNameMistake(request.name()); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a server: ", mistake));
  }
  if (const std::string mistake = AddressMistake(request.address()); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a server's address: ", mistake));
  }
  for (const std::string& text : {request.name(), request.address(), request.metrics_address()}) {
    if (absl::Status fits = CheckLength("a server", text); !fits.ok()) return fits;
  }
  const std::string who = Called("server", request.name());
  if (absl::Status speaks = CheckProtocol(who, ProtocolOf(request)); !speaks.ok()) return speaks;
  if (absl::Status same = CheckFingerprint(job_.config, who, request.job_fingerprint()); !same.ok()) return same;

  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (absl::Status alone = CheckNoNamesake(job_, request.name()); !alone.ok()) return alone;
  job_.backups.deposed().erase(request.name());
  NoteServer(job_, request);
  MembershipActions actions;
  for (const auto& [id, server] : job_.membership.servers()) {
    if (server.name != request.name() || job_.phase.state != wire::JOB_TRAINING) continue;
    job_.membership.ServerLost(id, server.incarnation, "was started again in the middle of training", actions);
    course_.Apply(std::exchange(actions, {}));
    if (job_.phase.Ended())
      return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
    if (job_.Replicated()) break;  // another has its place
    job_.shards.Renew(id);
    break;
  }
  wire::RegisterServerReply reply;
  reply.set_job(job_.config.id.value());
  SetProtocol(reply);
  if (const absl::StatusOr<ServerRef> spare = course_.RegisterSpare(request); spare.ok()) {
    NoteProtocol(job_, who, ProtocolOf(request));
    reply.set_server(spare->server.value());
    reply.set_incarnation(spare->incarnation.value());
    return reply;
  } else if (!absl::IsNotFound(spare.status())) {
    return spare.status();
  }
  for (const auto& [id, server] : job_.membership.servers()) {
    if (server.name == request.name()) job_.calls.Disconnect({id, server.incarnation});
  }
  absl::StatusOr<Membership::Registered> registered =
      job_.membership.RegisterServer(request.name(), request.address(), job_.time.Now(), actions);
  if (!registered.ok()) return registered.status();
  const ServerRef server = {ServerId(registered->id), registered->incarnation};
  job_.events.Add(absl::StrCat(who, " is there at ", request.address()));
  NoteProtocol(job_, who, ProtocolOf(request));
  job_.shards.SetNotInstalled(server.server);
  job_.servers.progress.erase(server.server);
  job_.shards.SetLocal(server.server, request.has_local() ? std::optional(request.local()) : std::nullopt);
  job_.calls.Connect(server, request.name(), request.address(), observer_);
  if (!job_.shards.placed()) {
    course_.Place();
  } else {
    course_.SendInstall(server.server);
  }
  course_.Apply(actions);

  reply.set_server(registered->id);
  reply.set_incarnation(registered->incarnation.value());
  return reply;
}

absl::StatusOr<std::optional<WorkerId>> MemberRequests::PreviousOf(const wire::RegisterWorkerRequest& request,
                                                                   absl::Time now) {
  // A number from another scheduler's life, given after the state was saved, may be somebody else's here, or nobody's.
  const auto earlier = job_.membership.workers().find(WorkerId(request.worker()));
  std::optional<WorkerId> own, other;
  if (earlier != job_.membership.workers().end() && earlier->second.incarnation == Incarnation(request.incarnation())) {
    own = earlier->first;
  }
  const WorkerOrigin origin = OriginOf(request);
  for (const WorkerId id : job_.membership.Named(request.name())) {
    const Membership::Worker& worker = job_.membership.workers().at(id);
    if (!IsThere(worker.state) || id == own) continue;
    const Kinship kinship = KinshipOf(job_.workers.origins.at(id), origin);
    // The reply to its first registration was lost: without this the process would count twice.
    if (kinship == Kinship::kSame && !own) return id;
    // A worker with a lease may be silent and live: the newcomer is a worker besides it.
    const bool excused = now < worker.excused_until && now - worker.heard > job_.config.timeouts.server_dead();
    if (kinship == Kinship::kOther && !excused) other = id;
  }
  if (!other) return own;
  const absl::Time heard = job_.membership.workers().at(*other).heard;
  const absl::Status free = job_.workers.claims.Ask({*other, job_.workers.origins.at(*other), heard}, origin,
                                                    Called("worker", request.name()), now);
  if (!free.ok()) return free;
  return own ? own : other;
}

absl::StatusOr<wire::RegisterWorkerReply> MemberRequests::RegisterWorker(const wire::RegisterWorkerRequest& request) {
  if (const std::string mistake = MemberNameMistake(request.name()); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a worker: ", mistake));
  }
  for (const std::string& text : {request.name(), request.host(), request.topology(), request.metrics_address()}) {
    if (absl::Status fits = CheckLength("a worker", text); !fits.ok()) return fits;
  }
  const std::string who = Called("worker", request.name());
  if (absl::Status speaks = CheckProtocol(who, ProtocolOf(request)); !speaks.ok()) return speaks;
  if (absl::Status same = CheckFingerprint(job_.config, who, request.job_fingerprint()); !same.ok()) return same;
  if (absl::Status known = CheckGroup(job_.config.job, request.group()); !known.ok()) return known;

  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (absl::Status same = course_.LearnModel(request); !same.ok()) return same;
  const absl::Time now = job_.time.Now();
  const absl::StatusOr<std::optional<WorkerId>> previous = PreviousOf(request, now);
  if (absl::IsAlreadyExists(previous.status())) job_.events.Add(absl::StrCat("warning: ", previous.status().message()));
  if (!previous.ok()) return previous.status();
  if (auto known = job_.membership.workers().find(previous->value_or(WorkerId()));
      known != job_.membership.workers().end()) {
    course_.WorkerGone({known->first, known->second.incarnation});
  }
  MembershipActions actions;
  absl::StatusOr<Membership::Registered> registered =
      job_.membership.RegisterWorker(request.name(), *previous, now, actions);
  if (!registered.ok()) return registered.status();
  const WorkerId id(registered->id);
  job_.workers.origins[id] = OriginOf(request);
  job_.workers.claims.Drop(id);
  job_.events.Add(absl::StrCat(who, *previous ? " comes back" : " is there"));
  NoteProtocol(job_, who, ProtocolOf(request));
  course_.Place();
  course_.Apply(actions);

  wire::RegisterWorkerReply reply;
  reply.set_job(job_.config.id.value());
  SetProtocol(reply);
  reply.set_worker(registered->id);
  reply.set_incarnation(registered->incarnation.value());
  return reply;
}

absl::StatusOr<wire::HeartbeatReply> MemberRequests::Heartbeat(const wire::HeartbeatRequest& request) {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  const absl::Time now = job_.time.Now();
  switch (request.role()) {
    case wire::MEMBER_ROLE_SERVER:
      return ServerHeartbeat(request, now);
    case wire::MEMBER_ROLE_WORKER:
      return WorkerHeartbeat(request, now);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a heartbeat has role ", request.role(), "; allowed are 1 (server) and 2 (worker)"));
  }
}

absl::StatusOr<wire::HeartbeatReply> MemberRequests::ServerHeartbeat(const wire::HeartbeatRequest& request,
                                                                     absl::Time now) {
  const ServerId id(request.member());
  const Incarnation incarnation(request.incarnation());
  if (job_.IsSpare({id, incarnation})) return SpareHeartbeat(request, now);
  if (absl::Status alive = job_.membership.HeartbeatServer(id, incarnation, now); !alive.ok()) {
    for (const auto& [name, drained] : job_.moves.drained()) {
      if (drained.incarnation != incarnation) continue;
      wire::HeartbeatReply leave;
      leave.set_leave(true);
      leave.set_leave_reason("it was drained");
      return leave;
    }
    for (const auto& [name, deposed] : job_.backups.deposed()) {
      if (deposed.incarnation != incarnation) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(Called("server", name), " was given up, and another has its place: ", deposed.reason));
    }
    return alive;
  }
  HearServer(job_, id, request.server(), now);
  if (request.server().durable() && job_.servers.durable.insert(id).second) course_.AnnounceDurable();
  if (request.leaving()) {
    MembershipActions actions;
    job_.membership.ServerLost(id, incarnation, absl::StrCat("left: ", request.leaving_reason()), actions);
    course_.Apply(actions);
  }
  wire::HeartbeatReply reply;
  if (job_.membership.servers().at(id).incarnation == incarnation) {
    const wire::BackupProgress& progress = request.server().backup();
    reply.set_backup_released(job_.Replicated() ? job_.backups.Hear(id, progress, job_.Facts())
                                                : job_.moves.Hear(id, progress));
  }
  reply.set_checkpoint_heard(HearCheckpoint(job_, id, request.server().checkpoint()));
  reply.set_generation(job_.moves.PublicGeneration());
  // Servers go last, so that no worker loses them in the middle of a step; by a call, which this is for those who
  // missed.
  reply.set_leave(now - job_.phase.stopping >= job_.config.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(job_.phase.reason);
  reply.set_job_ended(job_.phase.Ended());
  return reply;
}

wire::HeartbeatReply MemberRequests::SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now) {
  const ServerId id(request.member());
  job_.Spares().at(id).heard = now;
  wire::HeartbeatReply reply;
  reply.set_generation(job_.moves.PublicGeneration());
  reply.set_leave(now - job_.phase.stopping >= job_.config.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(job_.phase.reason);
  // A server without shards has nothing to keep for a last checkpoint.
  reply.set_job_ended(job_.Replicated() && job_.phase.Ended());
  if (request.leaving()) course_.DropSpare(id, absl::StrCat("left: ", request.leaving_reason()));
  return reply;
}

absl::StatusOr<wire::HeartbeatReply> MemberRequests::WorkerHeartbeat(const wire::HeartbeatRequest& request,
                                                                     absl::Time now) {
  const Holder holder = {WorkerId(request.member()), Incarnation(request.incarnation())};
  const wire::WorkerProgress* const progress = request.has_worker() ? &request.worker() : nullptr;
  if (absl::Status alive = HearWorker(job_, holder, progress, now); !alive.ok()) return alive;
  const Membership::Worker& worker = job_.membership.workers().at(holder.worker);
  wire::HeartbeatReply reply;
  reply.set_generation(job_.moves.PublicGeneration());
  if (request.leaving()) {
    if (job_.tasks) job_.tasks->ReachedParts(holder, request.reached());
    if (request.range() != 0 && job_.tasks) {
      const absl::Status left = job_.tasks->LeaveRange(holder, RangeId(request.range()), request.range_done_to());
      if (!left.ok()) return left;
      FollowTraining(job_, now);
    }
    job_.events.Add(absl::StrCat(Called("worker", worker.name), " leaves: ", request.leaving_reason()));
    MembershipActions actions;
    job_.membership.Leave(holder.worker, holder.incarnation, request.leaving_reason(), actions);
    course_.WorkerGone(holder);
    course_.Apply(actions);
  } else if (worker.state == WorkerState::kLive && job_.phase.state == wire::JOB_STARTING) {
    // Training begins for all at once: until then a worker that could train is told that it still joins.
    reply.set_state(wire::WORKER_JOINING);
  } else {
    reply.set_state(ToWire(worker.state));
    reply.set_first_clock(worker.first_clock.value());
    reply.set_send_seed(job_.Trains(worker) && !job_.AllSeeded());
  }
  if (job_.Parting(now)) {
    reply.set_leave(true);
    reply.set_leave_reason(job_.phase.reason);
    job_.workers.told_to_leave.insert(holder);
  }
  return reply;
}

absl::StatusOr<wire::NextTaskReply> MemberRequests::NextTask(const wire::NextTaskRequest& request,
                                                             absl::Span<const uint8_t> distances) {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  const absl::Time now = job_.time.Now();
  const Holder holder = {WorkerId(request.worker()), Incarnation(request.incarnation())};
  const wire::WorkerProgress* const progress = request.has_progress() ? &request.progress() : nullptr;
  if (absl::Status alive = HearWorker(job_, holder, progress, now); !alive.ok()) return alive;
  if (job_.phase.Ended() && !job_.Parting(now))
    return absl::UnavailableError("the end of the job is being saved: ask again");
  if (job_.phase.Ended()) return Hand(holder, LeaveWork{}, now);
  const Membership::Worker& worker = job_.membership.workers().at(holder.worker);
  if (job_.phase.state == wire::JOB_STARTING) return absl::UnavailableError(absl::StrCat("the job ", Missing(job_)));
  if (worker.state == WorkerState::kJoining) {
    return absl::UnavailableError(
        absl::StrCat(Called("worker", worker.name), " is still joining: a heartbeat says when it is live"));
  }
  job_.tasks->ReachedParts(holder, request.reached());
  if (request.range_done() != 0) {
    const absl::Status finished = job_.tasks->FinishRange(holder, RangeId(request.range_done()));
    if (!finished.ok()) return finished;
    FollowTraining(job_, now);
  }
  const Work work = job_.tasks->Next({.holder = holder,
                                      .live = worker.state == WorkerState::kLive,
                                      .pace = {.samples_per_second = request.samples_per_second(),
                                               .batch_size = job_.RangeUnit(job_.BatchSizeFor(holder.worker)),
                                               .workers = job_.membership.CountLive(),
                                               .distances = distances},
                                      .swift = !job_.tasks->EvaluationDue() || job_.Swift(holder.worker)});
  if (std::holds_alternative<RegisterAgainWork>(work)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Called("worker", worker.name), " is on standby and there is work: register again"));
  }
  return Hand(holder, work, now);
}

absl::StatusOr<wire::LeasePartsReply> MemberRequests::LeaseParts(const wire::LeasePartsRequest& request) {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  const Holder holder = {WorkerId(request.worker()), Incarnation(request.incarnation())};
  if (absl::Status alive = job_.membership.HeartbeatWorker(holder.worker, holder.incarnation, job_.time.Now());
      !alive.ok()) {
    return alive;
  }
  wire::LeasePartsReply reply;
  if (!job_.tasks || job_.phase.Ended()) return reply;
  if (job_.membership.workers().at(holder.worker).state != WorkerState::kLive) {
    return absl::FailedPreconditionError(absl::StrCat(job_.NameOf(holder.worker), " is not live: register again"));
  }
  absl::StatusOr<std::vector<wire::PartLease>> leases = job_.tasks->LeaseParts(holder, request);
  if (!leases.ok()) return leases.status();
  reply.mutable_leases()->Assign(leases->begin(), leases->end());
  return reply;
}

wire::NextTaskReply MemberRequests::Hand(const Holder& holder, const Work& work, absl::Time now) {
  wire::NextTaskReply reply;
  job_.membership.Excuse(holder.worker, holder.incarnation, absl::InfinitePast());
  if (const auto* range = std::get_if<DataRange>(&work)) {
    wire::RangeTask& task = *reply.mutable_range();
    task.set_range(range->id.value());
    task.set_epoch(range->epoch);
    task.set_begin(range->begin);
    task.set_end(range->end);
    task.set_batch_size(job_.BatchSizeFor(holder.worker));
    job_.workers.work_since[holder] = now;
    job_.membership.Excuse(holder.worker, holder.incarnation, now + job_.config.timeouts.task_lease);
  } else if (const auto* evaluation = std::get_if<EvaluationWork>(&work)) {
    wire::EvaluateTask& task = *reply.mutable_evaluate();
    task.set_epoch(evaluation->epoch);
    task.set_final(evaluation->final);
    task.set_at_samples(evaluation->at_samples);
    if (evaluation->final) job_.phase.trained = std::min(job_.phase.trained, now);
    job_.workers.measured[holder] = job_.StandingAt(now);
    task.set_run_folder(job_.config.run_folder);
    job_.workers.work_since[holder] = now;
  } else if (std::holds_alternative<LeaveWork>(work)) {
    reply.mutable_leave()->set_reason(job_.phase.reason);
    job_.workers.told_to_leave.insert(holder);
  } else {
    reply.mutable_standby()->set_retry_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(kStandbyRetryHeartbeats * job_.config.timeouts.heartbeat)));
    MembershipActions actions;
    job_.membership.Standby(holder.worker, holder.incarnation, actions);
    if (!actions.empty()) job_.events.Add(absl::StrCat(job_.NameOf(holder.worker), " stands by: nothing to do"));
    TrainsNoMore(job_, holder);
    course_.Apply(actions);
  }
  return reply;
}

absl::StatusOr<wire::GetShardMapReply> MemberRequests::GetShardMap(const wire::GetShardMapRequest& request) const {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  if (!job_.shards.placed())
    return absl::UnavailableError(absl::StrCat("there is no shard map yet; the job ", Missing(job_)));
  if (job_.moves.Unsaved())
    return absl::UnavailableError("shards are changing hands, and that is not saved yet: ask again");
  wire::GetShardMapReply reply;
  reply.set_generation(job_.shards.generation().value());
  reply.set_elements(job_.shards.layout().elements);
  reply.set_trained_elements(job_.shards.layout().trained_elements);
  reply.set_frozen_from(job_.shards.layout().frozen_from);
  for (const auto& [id, server] : job_.membership.servers()) {
    wire::ServerSpec& spec = *reply.add_servers();
    spec.set_server(id.value());
    spec.set_name(server.name);
    spec.set_address(server.address);
    spec.set_generation(job_.shards.GenerationOf(id).value());
    if (const wire::LocalAddress* local = job_.shards.LocalOf(id)) *spec.mutable_local() = *local;
  }
  for (const ShardPlace& place : job_.shards.places()) *reply.add_shards() = ToWire(place);
  return reply;
}

absl::Status MemberRequests::ReportEvaluation(const wire::EvaluationReport& request) {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  const absl::Time now = job_.time.Now();
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
    NoteEvaluation(job_, request, begun != job_.workers.measured.end() ? begun->second : job_.StandingAt(now),
                   job_.NameOf(holder.worker));
  }
  AddReport(job_, now);
  if (job_.tasks->Complete())
    course_.End(wire::JOB_DONE, WhyComplete(*job_.tasks, job_.config.job.training().epochs()));
  return absl::OkStatus();
}

absl::Status MemberRequests::ReportExit(const wire::ReportExitRequest& request) {
  if (absl::Status job = CheckJob(job_.config, request.job()); !job.ok()) return job;
  MembershipActions actions;
  bool known = false;
  if (request.role() == wire::MEMBER_ROLE_SERVER) {
    for (const auto& [id, server] : job_.membership.servers()) {
      if (server.name != request.name()) continue;
      known = true;
      job_.membership.ServerLost(id, server.incarnation, request.reason(), actions);
      break;
    }
    known = known || job_.backups.deposed().contains(request.name());
    if (const auto drained = job_.moves.drained().find(request.name()); drained != job_.moves.drained().end()) {
      known = true;
      job_.calls.Disconnect({drained->second.server, drained->second.incarnation});
    }
    for (const auto& [id, spare] : job_.Spares()) {
      if (spare.name != request.name()) continue;
      known = true;
      course_.DropSpare(id, request.reason());
      break;
    }
  } else {
    for (const WorkerId id : job_.membership.Named(request.name())) {
      known = true;
      job_.membership.Expel(id, job_.membership.workers().at(id).incarnation, request.reason(), actions);
    }
  }
  if (!known && !job_.phase.Ended()) {
    job_.workers.early_exits[request.name()] = request.reason();
    // Any peer chooses this name. The role in front keeps it from reading like another event.
    const char* const role = request.role() == wire::MEMBER_ROLE_SERVER ? "server" : "worker";
    job_.events.Add(absl::StrCat(Called(role, request.name()), " ended before it registered: ", request.reason()),
                    request.announced() ? Audience::kRecord : Audience::kPeople);
  }
  job_.exit_audience = request.announced() ? Audience::kRecord : Audience::kPeople;
  course_.Apply(actions);
  job_.exit_audience = Audience::kPeople;
  return absl::OkStatus();
}

}  // namespace slackline::scheduler

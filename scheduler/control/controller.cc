#include "scheduler/control/controller.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/address.h"
#include "common/job/push_samples.h"
#include "common/member_name.h"

namespace slackline::scheduler {
namespace {

// How soon a worker that has nothing to do asks again, in T.
constexpr int kStandbyRetryHeartbeats = 1;

JobSetting SettingOf(const Controller::Config& config) {
  return {.job = config.job, .id = config.id, .timeouts = config.timeouts, .keeps_state = config.keeps_state};
}

Membership::Config MembershipConfig(const Controller::Config& config) {
  Membership::Config membership;
  membership.timeouts = config.timeouts;
  membership.servers = config.job.cluster().servers();
  // Nobody takes over from a server at once: its death costs what was pushed since the last snapshot, or the run. It is
  // believed as late as a worker's.
  membership.server_silence_max = config.timeouts.worker_dead();
  return membership;
}

// Images that a range has for each whole push.
uint32_t RangeUnit(const job::Job& job, uint32_t batch_size, const ModelLayout& layout) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(ImagesOfPush(job, batch_size, layout.train_samples), kMost));
}

Tasks::Config TasksConfig(const job::Job& job, const ModelLayout& layout) {
  Tasks::Config tasks;
  tasks.ranges.samples_per_epoch = layout.train_samples;
  tasks.ranges.epochs = job.training().epochs();
  // Whole pushes.
  tasks.ranges.batch_size = RangeUnit(job, job.training().batch_size(), layout);
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

BatchSizes BatchSizesOf(const job::Training& training) {
  BatchSizes::Config sizes;
  sizes.batch_size = training.batch_size();
  sizes.least = training.batch_size_min();
  sizes.balance = training.batch() == job::Training::BALANCE;
  return BatchSizes(sizes);
}

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

}  // namespace

Controller::Controller(const Config& config, const TimeSource& time, ServerCalls& servers)
    : config_(config),
      time_(time),
      servers_(servers),
      images_({.silence_max = config.timeouts.worker_dead()}),
      created_(time.Now()),
      membership_(MembershipConfig(config)),
      shards_(config.id),
      claims_(config.timeouts),
      batch_sizes_(BatchSizesOf(config.job.training())),
      watch_(config.job),
      events_(config.tells_after_record),
      checkpoints_({.job = config.job,
                    .id = config.id,
                    .folder = config.checkpoint_folder,
                    .last_number = config.checkpoint_number,
                    .servers_max = config.timeouts.server_dead()},
                   events_, room_),
      backups_(SettingOf(config), membership_, shards_, servers_, *this, events_),
      moves_(SettingOf(config), membership_, shards_, servers_, *this, events_, *this),
      evaluations_(config.job),
      last_report_(created_) {}

// --- Joining ----------------------------------------------------------------------------------------------------

absl::Status Controller::CheckJob(uint64_t job) const {
  if (job == config_.id.value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat("this is job %016x (%s), the request names job %016x",
                                                       config_.id.value(), config_.job.name(), job));
}

absl::Status Controller::CheckFingerprint(const std::string& who, uint64_t fingerprint) const {
  if (fingerprint == config_.fingerprint) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s was started with another job file than the scheduler (fingerprint %016x, the scheduler's is %016x): start it "
      "with the scheduler's job file and the same --set options",
      who, fingerprint, config_.fingerprint));
}

void Controller::NoteProtocol(const std::string& who, const ProtocolVersion& theirs) {
  if (std::string newer = NewerProtocol(who, theirs); !newer.empty()) events_.Add(std::move(newer));
}

absl::StatusOr<wire::RegisterServerReply> Controller::RegisterServer(const wire::RegisterServerRequest& request) {
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
  if (absl::Status same = CheckFingerprint(who, request.job_fingerprint()); !same.ok()) return same;

  absl::MutexLock lock(&mutex_);
  if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
  if (absl::Status alone = CheckNoNamesake(request.name()); !alone.ok()) return alone;
  backups_.deposed().erase(request.name());
  NoteServerMetrics(request);
  MembershipActions actions;
  for (const auto& [id, server] : membership_.servers()) {
    if (server.name != request.name() || state_ != wire::JOB_TRAINING) continue;
    membership_.ServerLost(id, server.incarnation, "was started again in the middle of training", actions);
    Apply(std::exchange(actions, {}));
    if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
    if (Replicated()) break;  // another has its place
    shards_.Renew(id);
    break;
  }
  wire::RegisterServerReply reply;
  reply.set_job(config_.id.value());
  SetProtocol(reply);
  if (const absl::StatusOr<ServerRef> spare = RegisterSpare(request); spare.ok()) {
    NoteProtocol(who, ProtocolOf(request));
    reply.set_server(spare->server.value());
    reply.set_incarnation(spare->incarnation.value());
    return reply;
  } else if (!absl::IsNotFound(spare.status())) {
    return spare.status();
  }
  for (const auto& [id, server] : membership_.servers()) {
    if (server.name == request.name()) servers_.Disconnect({id, server.incarnation});
  }
  absl::StatusOr<Membership::Registered> registered =
      membership_.RegisterServer(request.name(), request.address(), time_.Now(), actions);
  if (!registered.ok()) return registered.status();
  const ServerRef server = {ServerId(registered->id), registered->incarnation};
  events_.Add(absl::StrCat(who, " is there at ", request.address()));
  NoteProtocol(who, ProtocolOf(request));
  shards_.SetNotInstalled(server.server);
  server_progress_.erase(server.server);
  shards_.SetLocal(server.server, request.has_local() ? std::optional(request.local()) : std::nullopt);
  servers_.Connect(server, request.name(), request.address(), *this);
  if (!shards_.placed()) {
    Place();
  } else {
    SendInstall(server.server);
  }
  Apply(actions);

  reply.set_server(registered->id);
  reply.set_incarnation(registered->incarnation.value());
  return reply;
}

absl::Status Controller::CheckNoNamesake(const std::string& name) const {
  const absl::Time now = time_.Now();
  const auto check = [&](const std::string& there, const std::string& address, absl::Time heard) {
    if (there != name || now - heard > config_.timeouts.server_dead()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        Called("server", name), " is there already, at ", address, ": its last heartbeat came ", Readable(now - heard),
        " ago; allowed is another name, or this one when nothing was heard of it for ",
        Readable(config_.timeouts.server_dead())));
  };
  absl::Status status;
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state == ServerState::kLive) status.Update(check(server.name, server.address, server.heard));
  }
  for (const auto& [id, spare] : Spares()) status.Update(check(spare.name, spare.address, spare.heard));
  return status;
}

absl::Status Controller::LearnModel(const wire::RegisterWorkerRequest& request) {
  if (first_worker_) {
    if (absl::Status same = CheckSame(*first_worker_, request); !same.ok()) return same;
    if (absl::Status kept = CheckDataKept(data_kept_, goes_on_from_, request); !kept.ok()) return kept;
    if (first_worker_->data_fingerprint() == 0) first_worker_->set_data_fingerprint(request.data_fingerprint());
    return absl::OkStatus();
  }
  absl::StatusOr<ModelLayout> layout = LayoutOf(request, config_.job.optimizer());
  if (!layout.ok()) return layout.status();
  first_worker_ = request;
  first_worker_->clear_version();  // of this process, not of the model
  shards_.SetLayout(*layout);
  tasks_.emplace(TasksConfig(config_.job, *layout));
  return absl::OkStatus();
}

absl::StatusOr<wire::GetShardMapReply> Controller::GetShardMap(const wire::GetShardMapRequest& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  if (!shards_.placed()) return absl::UnavailableError(absl::StrCat("there is no shard map yet; the job ", Missing()));
  if (moves_.Unsaved())
    return absl::UnavailableError("shards are changing hands, and that is not saved yet: ask again");
  wire::GetShardMapReply reply;
  reply.set_generation(shards_.generation().value());
  reply.set_elements(shards_.layout().elements);
  reply.set_trained_elements(shards_.layout().trained_elements);
  reply.set_frozen_from(shards_.layout().frozen_from);
  for (const auto& [id, server] : membership_.servers()) {
    wire::ServerSpec& spec = *reply.add_servers();
    spec.set_server(id.value());
    spec.set_name(server.name);
    spec.set_address(server.address);
    spec.set_generation(shards_.GenerationOf(id).value());
    if (const wire::LocalAddress* local = shards_.LocalOf(id)) *spec.mutable_local() = *local;
  }
  for (const ShardPlace& place : shards_.places()) *reply.add_shards() = ToWire(place);
  return reply;
}

// --- Heartbeats -------------------------------------------------------------------------------------------------

absl::StatusOr<wire::HeartbeatReply> Controller::Heartbeat(const wire::HeartbeatRequest& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
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

absl::StatusOr<wire::HeartbeatReply> Controller::ServerHeartbeat(const wire::HeartbeatRequest& request,
                                                                 absl::Time now) {
  const ServerId id(request.member());
  const Incarnation incarnation(request.incarnation());
  if (IsSpare({id, incarnation})) return SpareHeartbeat(request, now);
  if (absl::Status alive = membership_.HeartbeatServer(id, incarnation, now); !alive.ok()) {
    for (const auto& [name, drained] : moves_.drained()) {
      if (drained.incarnation != incarnation) continue;
      wire::HeartbeatReply leave;
      leave.set_leave(true);
      leave.set_leave_reason("it was drained");
      return leave;
    }
    for (const auto& [name, deposed] : backups_.deposed()) {
      if (deposed.incarnation != incarnation) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(Called("server", name), " was given up, and another has its place: ", deposed.reason));
    }
    return alive;
  }
  HearSnapshots(id, request.server());
  HearVersions(id, request.server(), now);
  server_progress_[id] = request.server();
  if (request.server().durable() && durable_.insert(id).second) AnnounceDurable();
  if (request.leaving()) {
    MembershipActions actions;
    membership_.ServerLost(id, incarnation, absl::StrCat("left: ", request.leaving_reason()), actions);
    Apply(actions);
  }
  wire::HeartbeatReply reply;
  if (membership_.servers().at(id).incarnation == incarnation) {
    const wire::BackupProgress& progress = request.server().backup();
    reply.set_backup_released(Replicated() ? backups_.Hear(id, progress, Facts()) : moves_.Hear(id, progress));
  }
  reply.set_checkpoint_heard(HearCheckpoint(id, request.server().checkpoint()));
  reply.set_generation(moves_.PublicGeneration());
  // Servers go last, so that no worker loses them in the middle of a step; by a call, which this is for those who
  // missed.
  reply.set_leave(now - stopping_ >= config_.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(reason_);
  reply.set_job_ended(Ended());
  return reply;
}

absl::Status Controller::HearWorker(const Holder& holder, const wire::WorkerProgress* progress, absl::Time now) {
  if (absl::Status alive = membership_.HeartbeatWorker(holder.worker, holder.incarnation, now); !alive.ok()) {
    return alive;
  }
  const bool trains = Trains(membership_.workers().at(holder.worker));
  const uint64_t lost_before = progress_.TotalsOf(holder.worker).pushes_lost;
  if (progress != nullptr) {
    progress_.Heard(holder, *progress, trains, now);
    FollowTraining(now);
    HearWait(holder, *progress, now);
  }
  const ProgressTotals totals = progress_.TotalsOf(holder.worker);
  if (totals.pushes_lost > lost_before) AddLossEvent(holder, totals.pushes_lost - lost_before, "");
  batch_sizes_.Observe(holder.worker, {.samples = totals.samples, .seconds = totals.compute_seconds});
  return absl::OkStatus();
}

bool Controller::Trains(const Membership::Worker& worker) const {
  return worker.state == WorkerState::kLive && state_ == wire::JOB_TRAINING;
}

absl::StatusOr<wire::HeartbeatReply> Controller::WorkerHeartbeat(const wire::HeartbeatRequest& request,
                                                                 absl::Time now) {
  const Holder holder = {WorkerId(request.member()), Incarnation(request.incarnation())};
  const wire::WorkerProgress* const progress = request.has_worker() ? &request.worker() : nullptr;
  if (absl::Status alive = HearWorker(holder, progress, now); !alive.ok()) return alive;
  const Membership::Worker& worker = membership_.workers().at(holder.worker);
  wire::HeartbeatReply reply;
  reply.set_generation(moves_.PublicGeneration());
  if (request.leaving()) {
    if (request.range() != 0 && tasks_) {
      const absl::Status left = tasks_->LeaveRange(holder, RangeId(request.range()), request.range_done_to());
      if (!left.ok()) return left;
      FollowTraining(now);
    }
    events_.Add(absl::StrCat(Called("worker", worker.name), " leaves: ", request.leaving_reason()));
    MembershipActions actions;
    membership_.Leave(holder.worker, holder.incarnation, request.leaving_reason(), actions);
    WorkerGone(holder);
    Apply(actions);
  } else if (worker.state == WorkerState::kLive && state_ == wire::JOB_STARTING) {
    // Training begins for all at once: until then a worker that could train is told that it still joins.
    reply.set_state(wire::WORKER_JOINING);
  } else {
    reply.set_state(ToWire(worker.state));
    reply.set_first_clock(worker.first_clock.value());
    reply.set_send_seed(Trains(worker) && !AllSeeded());
  }
  if (Parting(now)) {
    reply.set_leave(true);
    reply.set_leave_reason(reason_);
    told_to_leave_.insert(holder);
  }
  return reply;
}

bool Controller::AllSeeded() const {
  for (const auto& [id, server] : membership_.servers()) {
    // Shards that move have weights, whatever a server says that has none just now.
    if (shards_.moved() && (!shards_.Holds(id) || moves_.Concerns(id))) continue;
    auto progress = server_progress_.find(id);
    if (progress == server_progress_.end() || !progress->second.seeded()) return false;
  }
  return true;
}

// --- Work -------------------------------------------------------------------------------------------------------

absl::StatusOr<wire::NextTaskReply> Controller::NextTask(const wire::NextTaskRequest& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  const Holder holder = {WorkerId(request.worker()), Incarnation(request.incarnation())};
  const wire::WorkerProgress* const progress = request.has_progress() ? &request.progress() : nullptr;
  if (absl::Status alive = HearWorker(holder, progress, now); !alive.ok()) return alive;
  if (Ended() && !Parting(now)) return absl::UnavailableError("the end of the job is being saved: ask again");
  if (Ended()) return Hand(holder, LeaveWork{}, now);
  const Membership::Worker& worker = membership_.workers().at(holder.worker);
  if (state_ == wire::JOB_STARTING) return absl::UnavailableError(absl::StrCat("the job ", Missing()));
  if (worker.state == WorkerState::kJoining) {
    return absl::UnavailableError(
        absl::StrCat(Called("worker", worker.name), " is still joining: a heartbeat says when it is live"));
  }
  if (request.range_done() != 0) {
    const absl::Status finished = tasks_->FinishRange(holder, RangeId(request.range_done()));
    if (!finished.ok()) return finished;
    FollowTraining(now);
  }
  const Work work =
      tasks_->Next({.holder = holder,
                    .live = worker.state == WorkerState::kLive,
                    .pace = {.samples_per_second = request.samples_per_second(),
                             .batch_size = RangeUnit(config_.job, BatchSizeFor(holder.worker), shards_.layout()),
                             .workers = membership_.CountLive()},
                    .swift = !tasks_->EvaluationDue() || Swift(holder.worker)});
  if (std::holds_alternative<RegisterAgainWork>(work)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Called("worker", worker.name), " is on standby and there is work: register again"));
  }
  return Hand(holder, work, now);
}

wire::NextTaskReply Controller::Hand(const Holder& holder, const Work& work, absl::Time now) {
  wire::NextTaskReply reply;
  membership_.Excuse(holder.worker, holder.incarnation, absl::InfinitePast());
  if (const auto* range = std::get_if<DataRange>(&work)) {
    wire::RangeTask& task = *reply.mutable_range();
    task.set_range(range->id.value());
    task.set_epoch(range->epoch);
    task.set_begin(range->begin);
    task.set_end(range->end);
    task.set_batch_size(BatchSizeFor(holder.worker));
    work_since_[holder] = now;
    membership_.Excuse(holder.worker, holder.incarnation, now + config_.timeouts.task_lease);
  } else if (const auto* evaluation = std::get_if<EvaluationWork>(&work)) {
    wire::EvaluateTask& task = *reply.mutable_evaluate();
    task.set_epoch(evaluation->epoch);
    task.set_final(evaluation->final);
    task.set_at_samples(evaluation->at_samples);
    if (evaluation->final) trained_ = std::min(trained_, now);
    measured_[holder] = StandingAt(now);
    task.set_run_folder(config_.run_folder);
    work_since_[holder] = now;
  } else if (std::holds_alternative<LeaveWork>(work)) {
    reply.mutable_leave()->set_reason(reason_);
    told_to_leave_.insert(holder);
  } else {
    reply.mutable_standby()->set_retry_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(kStandbyRetryHeartbeats * config_.timeouts.heartbeat)));
    MembershipActions actions;
    membership_.Standby(holder.worker, holder.incarnation, actions);
    if (!actions.empty()) events_.Add(absl::StrCat(NameOf(holder.worker), " stands by: nothing to do"));
    TrainsNoMore(holder);
    Apply(actions);
  }
  return reply;
}

// --- Endings ----------------------------------------------------------------------------------------------------

absl::Status Controller::ReportExit(const wire::ReportExitRequest& request) {
  if (absl::Status job = CheckJob(request.job()); !job.ok()) return job;
  absl::MutexLock lock(&mutex_);
  MembershipActions actions;
  bool known = false;
  if (request.role() == wire::MEMBER_ROLE_SERVER) {
    for (const auto& [id, server] : membership_.servers()) {
      if (server.name != request.name()) continue;
      known = true;
      membership_.ServerLost(id, server.incarnation, request.reason(), actions);
      break;
    }
    known = known || backups_.deposed().contains(request.name());
    if (const auto drained = moves_.drained().find(request.name()); drained != moves_.drained().end()) {
      known = true;
      servers_.Disconnect({drained->second.server, drained->second.incarnation});
    }
    for (const auto& [id, spare] : Spares()) {
      if (spare.name != request.name()) continue;
      known = true;
      DropSpare(id, request.reason());
      break;
    }
  } else {
    for (const auto& [id, worker] : membership_.workers()) {
      if (worker.name != request.name()) continue;
      known = true;
      membership_.Expel(id, worker.incarnation, request.reason(), actions);
    }
  }
  if (!known && !Ended()) {
    early_exits_[request.name()] = request.reason();
    // Any peer chooses this name. The role in front keeps it from reading like another event.
    const char* const role = request.role() == wire::MEMBER_ROLE_SERVER ? "server" : "worker";
    events_.Add(absl::StrCat(Called(role, request.name()), " ended before it registered: ", request.reason()),
                request.announced() ? Audience::kRecord : Audience::kPeople);
  }
  exit_audience_ = request.announced() ? Audience::kRecord : Audience::kPeople;
  Apply(actions);
  exit_audience_ = Audience::kPeople;
  return absl::OkStatus();
}

void Controller::StopJob(const std::string& reason, bool failed) {
  absl::MutexLock lock(&mutex_);
  End(failed ? wire::JOB_FAILED : wire::JOB_STOPPED, reason);
}

void Controller::Dismiss(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  // If training never began, nobody asks how the job ended.
  if (Ended() || state_ == wire::JOB_STARTING) status_seen_ = true;
  End(wire::JOB_STOPPED, reason);
}

}  // namespace slackline::scheduler

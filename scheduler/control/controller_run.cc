// What follows from a change of the members or from the time: placement, start, deaths, stalls, the end.
#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/counted.h"
#include "common/job/push_samples.h"
#include "common/slowdown.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

// Once all is said: how long a supervisor has to ask how it ended.
constexpr absl::Duration kStatusLinger = absl::Seconds(5);
// Between two ticks, which come every T / 2 or more often: more than that is no delay any more, ...
constexpr int kSleepHeartbeats = 4;
// ... and where 3 T of silence are death, this is not: a sleep of less, and T between heartbeats, are less than that.
constexpr int kSleepHeartbeatsReplicated = 1;
// Names in one message.
constexpr size_t kNamesMax = 10;

absl::Duration ServerReturn(const job::Job& job) { return absl::Seconds(job.durability().server_return_s()); }

absl::Duration FromMilliseconds(double milliseconds) { return absl::Milliseconds(std::clamp(milliseconds, 0.0, 1e12)); }

}  // namespace

// --- Members ----------------------------------------------------------------------------------------------------

void Controller::Apply(const MembershipActions& actions) {
  for (const MembershipAction& action : actions) {
    std::visit([this](const auto& what) ABSL_NO_THREAD_SAFETY_ANALYSIS { Act(what); }, action);
  }
  BeginIfReady();
}

void Controller::Act(const SendMembersAction& action) {
  wire::SetMembersRequest request;
  request.set_job(config_.id.value());
  request.set_generation(shards_.GenerationOf(action.server).value());
  request.set_epoch(action.epoch.value());
  request.set_server_incarnation(action.server_incarnation.value());
  for (const MemberRef& member : action.members) {
    wire::Member& spec = *request.add_members();
    spec.set_worker(member.worker.value());
    spec.set_incarnation(member.incarnation.value());
    spec.set_name(member.name);
  }
  if (watch_.bound()) request.set_staleness_bound(*watch_.bound());
  servers_.SetMembers({action.server, action.server_incarnation}, request);
}

void Controller::Act(const WorkerLiveAction& action) {
  events_.Add(absl::StrCat(NameOf(action.worker), " is live from clock ", action.first_clock.value()));
}

void Controller::Act(const WorkerFencedAction& action) {
  const Holder holder = {action.worker, action.incarnation};
  const uint64_t samples = tasks_ ? tasks_->Fenced(holder) : 0;
  if (samples == 0 || Ended()) return;
  events_.Add(absl::StrCat("the ", Counted(samples, "sample"), " that ", NameOf(action.worker), " held go to others"));
}

void Controller::Act(const WorkerDeadAction& action) {
  WorkerGone({action.worker, action.incarnation});
  if (Ended()) return;
  ++worker_deaths_;
  events_.Add(absl::StrCat(NameOf(action.worker), " is dead: ", action.reason), exit_audience_);
}

void Controller::Act(const ServerDeadAction& action) {
  checkpoints_.ServerLost(action.server);
  if (Ended()) return;
  moves_.ServerLost(action.server, Facts());
  const Membership::Server& server = membership_.servers().at(action.server);
  const absl::Time now = time_.Now();
  const std::string what =
      absl::StrCat(Called("server", server.name), " (", server.address, ") is dead: ", action.reason,
                   "; its last heartbeat came ", Readable(now - server.heard), " ago");
  if (backups_.TakeOver(action.server, Facts())) {
    lost_since_.try_emplace(action.server, now);
    return;
  }
  if (Replicated() && state_ == wire::JOB_TRAINING) {
    return End(wire::JOB_FAILED, absl::StrCat(what, ", and no backup has all that it has answered"));
  }
  if (!MayComeBack(action.server)) {
    const char* const early = config_.snapshot_folder.empty() ? ""
                              : state_ == wire::JOB_STARTING  ? "; training had not begun yet"
                                                              : "; its shards were not on disk yet";
    return End(wire::JOB_FAILED, absl::StrCat(what, early));
  }
  // From the first of several deaths on, until its shards are back.
  lost_since_.try_emplace(action.server, now);
  servers_.Disconnect({action.server, action.incarnation});
  events_.Add(absl::StrCat(what, "; training waits up to ", absl::FormatDuration(ServerReturn(config_.job)),
                           " for it to come back and go on from its snapshots"));
}

bool Controller::MayComeBack(ServerId server) const {
  return !config_.snapshot_folder.empty() && state_ == wire::JOB_TRAINING && durable_.contains(server);
}

void Controller::FailIfServersStayAway(absl::Time now) {
  for (const auto& [id, since] : lost_since_) {
    if (now - since <= ServerReturn(config_.job)) continue;
    const Membership::Server& server = membership_.servers().at(id);
    return End(
        wire::JOB_FAILED,
        absl::StrCat(Called("server", server.name), " died ", Readable(now - since), " ago, and ",
                     server.state == ServerState::kLive ? "its shards are not back" : "was not started again",
                     "; allowed are ", absl::FormatDuration(ServerReturn(config_.job)), " (durability.server_return_s)",
                     Replicated() ? "" : absl::StrCat("; its snapshots are in ", config_.snapshot_folder)));
  }
}

void Controller::WorkerGone(const Holder& holder) {
  TrainsNoMore(holder);
  work_since_.erase(holder);
  measured_.erase(holder);
  room_.WorkerGone(holder);
  if (tasks_) tasks_->Gone(holder);
}

std::string Controller::NameOf(WorkerId worker) const {
  auto found = membership_.workers().find(worker);
  return Called("worker", found != membership_.workers().end() ? found->second.name : absl::StrCat(worker.value()));
}

// --- Start ------------------------------------------------------------------------------------------------------

void Controller::Place() {
  if (shards_.placed() || !first_worker_ || !membership_.AllServersPresent()) return;
  const job::Cluster& cluster = config_.job.cluster();
  const std::map<ServerId, double> shares = moves_.Shares();
  shards_.Place(cluster, shares);
  const ModelLayout& layout = shards_.layout();
  const size_t shards = shards_.places().size();
  const uint64_t frozen = layout.frozen_from == 0 ? 0 : layout.elements - layout.frozen_from;
  events_.Add(absl::StrCat("the model has ", layout.trained_elements, " parameters and ",
                           layout.elements - frozen - layout.trained_elements, " averaged values, ",
                           frozen == 0 ? "" : absl::StrCat("and ", frozen, " that are frozen, "), "in ", shards,
                           " shards on ", cluster.servers(), cluster.servers() == 1 ? " server" : " servers"));
  if (shards < cluster.servers()) {
    return End(wire::JOB_FAILED, absl::StrCat("the model has ", layout.elements, " elements, and a server takes ",
                                              kShardAlignment, " of them at least: found cluster.servers: ",
                                              cluster.servers(), "; allowed is 1 to ", shards, " with this model"));
  }
  if (!shares.empty()) TellShares(shares);
  for (const std::string& doubt : {SlowdownDoubt(config_.job), FewSamplesDoubt(config_.job, layout.train_samples)}) {
    if (!doubt.empty()) events_.Add(absl::StrCat("warning: ", doubt));
  }
  for (const auto& [id, server] : membership_.servers()) SendInstall(id);
}

void Controller::TellShares(const std::map<ServerId, double>& shares) {
  std::map<ServerId, size_t> shards;
  for (const ShardPlace& place : shards_.places()) ++shards[place.server];
  std::vector<std::string> parts;
  for (const auto& [id, share] : shares) {
    parts.push_back(absl::StrFormat("%s %d (%g Gbit/s)", membership_.servers().at(id).name, shards[id], share / 1000));
  }
  events_.Add(absl::StrCat("shards go by the links of the servers: ", absl::StrJoin(parts, ", ")), Audience::kRecord);
}

void Controller::SendInstall(ServerId server) {
  if (moves_.AwaitsGivingUp(server)) return;
  const Incarnation incarnation = membership_.servers().at(server).incarnation;
  wire::InstallShardsRequest request = shards_.InstallRequest(server, incarnation);
  request.set_snapshot_folder(config_.snapshot_folder);
  // The generation has risen with every restore, so that no two have one lineage.
  if (const Generation again = shards_.GenerationOf(server); again != kFirstGeneration) {
    request.set_restore_lineage(static_cast<uint32_t>(again.value()));
    request.set_moves(shards_.moved() && !Replicated());
  }
  request.set_replicated(Replicated());
  request.set_promote(backups_.Promoted(server));
  request.set_checkpoint_folder(goes_on_from_);
  servers_.Install({server, incarnation}, request);
  backups_.Install(server);
}

void Controller::Installed(ServerRef server, const wire::InstallShardsReply& reply) {
  absl::MutexLock lock(&mutex_);
  auto found = membership_.servers().find(server.server);
  if (found == membership_.servers().end() || found->second.incarnation != server.incarnation) return;
  if (found->second.state != ServerState::kLive) return;  // it was given up meanwhile
  if (backups_.Promoting(server.server)) return;          // that was what it was told before
  shards_.SetInstalled(server.server);
  if (const auto lost = lost_since_.find(server.server); lost != lost_since_.end()) {
    events_.Add(absl::StrCat(
        Called("server", found->second.name), Replicated() ? " has taken over, " : " goes on from its snapshots, ",
        Readable(time_.Now() - lost->second), Replicated() ? " after the other was found dead" : " after it died"));
    lost_since_.erase(lost);
    Restored(server.server, reply);
  }
  moves_.Installed(server.server, Facts());
  BeginIfReady();
}

void Controller::Restored(ServerId server, const wire::InstallShardsReply& reply) {
  for (const wire::RestoredWorker& restored : reply.restored()) {
    const Holder holder = {WorkerId(restored.worker()), Incarnation(restored.incarnation())};
    progress_.Restored(server, holder, restored, time_.Now() + 2 * config_.timeouts.heartbeat);
    // The others report it themselves with their next step; or this does when they leave without one.
    const auto worker = membership_.workers().find(holder.worker);
    const bool trains = worker != membership_.workers().end() && worker->second.incarnation == holder.incarnation &&
                        Trains(worker->second) && trained_ == absl::InfiniteFuture();
    if (!trains) TrainsNoMore(holder);
  }
}

void Controller::TrainsNoMore(const Holder& holder) {
  progress_.Left(holder);
  if (const uint64_t lost = progress_.TakeUnreported(holder); lost > 0)
    AddLossEvent(holder, lost, ", after its last step");
}

void Controller::AddLossEvent(const Holder& holder, uint64_t lost, absl::string_view when) {
  events_.Add(absl::StrCat(lost, " answered sub-pushes of ", NameOf(holder.worker), " were lost", when,
                           ": shards went on from snapshots that did not have them yet. Their samples count as "
                           "trained, and are not trained again"));
}

void Controller::MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) {
  absl::MutexLock lock(&mutex_);
  // Of the shards that it had before: it has to take the set with those that it has now.
  if (reply.generation() != 0 && Generation(reply.generation()) != shards_.GenerationOf(server.server)) return;
  MembershipActions actions;
  membership_.MembersInstalled(server.server, server.incarnation, Epoch(reply.epoch()),
                               Clock64(reply.clock_min_largest()), actions);
  Apply(actions);
}

void Controller::BeginIfReady() {
  if (state_ != wire::JOB_STARTING) return;
  // Thousands register one after the other: the whole list of what is missing is for people.
  if (membership_.CountLive() < config_.job.cluster().workers() || !Missing().empty()) return;
  state_ = wire::JOB_TRAINING;
  const absl::Time now = time_.Now();
  began_ = now - elapsed_before_;
  last_report_ = now;
  watch_.Begin(progress_.totals(), now);
  checkpoints_.TrainingBegins(now);
  events_.Add(absl::StrCat("training begins with ", Counted(membership_.CountLive(), "worker"), " on ",
                           Counted(shards_.layout().train_samples, "sample"), " for ",
                           Counted(config_.job.training().epochs(), "epoch")));
  // Servers that go on from a checkpoint may have been ready before the workers.
  AnnounceDurable();
}

void Controller::AnnounceDurable() {
  if (state_ != wire::JOB_TRAINING || durable_.size() != membership_.places()) return;
  events_.Add("all shards are on disk: from now on a server that dies can come back");
}

// --- Time -------------------------------------------------------------------------------------------------------

void Controller::Tick() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  ForgiveOwnSleep(now);
  // Before: where both are silent, it may be this machine's network.
  if (!Ended()) {
    if (const auto never = backups_.NeverBacked(Facts())) End(wire::JOB_FAILED, *never);
    backups_.Watch(Facts());
  }
  MembershipActions actions;
  membership_.Tick(now, actions);
  Apply(actions);
  ForgetDeparted();
  if (Ended()) return PartTick(now);
  if (state_ == wire::JOB_STARTING) {
    if (now - created_ <= config_.timeouts.startup) return;
    return End(wire::JOB_FAILED,
               absl::StrCat("the job could not start within ", Readable(config_.timeouts.startup), ": it ", Missing()));
  }
  FailIfServersStayAway(now);
  moves_.Tick(checkpoints_.in_progress(), Facts());
  ExpelStalled(now);
  if (Ended()) return;
  FailIfDeserted(now);
  FailIfNoRoom(now);
  WatchDivergence();
  if (Ended()) return;
  WatchBound(now);
  WatchSnapshots(now);
  WatchCheckpoints(now);
  if (now - last_report_ >= absl::Milliseconds(config_.job.output().report_every_ms())) AddReport(now);
}

void Controller::ForgiveOwnSleep(absl::Time now) {
  const absl::Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap <= (Replicated() ? kSleepHeartbeatsReplicated : kSleepHeartbeats) * config_.timeouts.heartbeat) return;
  // Not all of it: where every tick is that late, the dead must be found nevertheless.
  const absl::Duration slept = Replicated() ? gap - config_.timeouts.heartbeat / 2 : gap;
  membership_.Overslept(slept, now);
  stalls_.Overslept(slept);
  claims_.Clear();
  for (auto& [server, since] : lost_since_) since += slept;
  for (auto& [server, spare] : Spares()) spare.heard = std::min(now, spare.heard + slept);
  if (deserted_since_) *deserted_since_ += slept;
  if (gap <= kSleepHeartbeats * config_.timeouts.heartbeat) return;  // nothing to speak of
  events_.Add(absl::StrCat("the scheduler itself stood still for ", Readable(gap),
                           "; the pause does not count as silence of workers and servers"));
}

void Controller::ExpelStalled(absl::Time now) {
  MembershipActions actions;
  std::optional<std::string> in_vain;
  const auto expel = [&](const Holder& holder, const std::string& name, const std::string& reason)
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                           membership_.Expel(holder.worker, holder.incarnation, reason, actions);
                           if (const auto why = stalls_.Expelled(name, progress_.totals().samples)) {
                             in_vain = absl::StrCat(*why, ": ", reason);
                           }
                         };
  std::vector<Holder> waiting;
  std::vector<uint64_t> clocks;
  // In the other modes no worker waits for another one.
  const auto mode = config_.job.consistency().mode();
  bool all_wait = mode != job::Consistency::ASYNC && mode != job::Consistency::SOFTSYNC && AllServersThere().ok();
  for (const auto& [id, worker] : membership_.workers()) {
    const Holder holder = {id, worker.incarnation};
    auto since = work_since_.find(holder);
    const wire::WorkerProgress* progress = progress_.Of(holder);
    if (since == work_since_.end() || progress == nullptr || !tasks_->Busy(holder)) continue;
    if (progress->waiting()) {
      waiting.push_back(holder);
      clocks.push_back(progress->clock());
      continue;
    }
    all_wait = false;
    // Before it had its present work it was idle by order.
    const absl::Duration idle =
        std::min(FromMilliseconds(static_cast<double>(progress->idle_ms())), now - since->second);
    const absl::Duration allowed = stalls_.Allowed(*progress);
    if (idle <= allowed) continue;
    expel(holder, worker.name, StallWatch::Reason(idle, allowed));
  }
  if (!all_wait) clocks.clear();
  if (const auto slowest = stalls_.HoldsUp(clocks, progress_.totals().samples, now)) {
    const Holder& holder = waiting[*slowest];
    expel(
        holder, membership_.workers().at(holder.worker).name,
        absl::StrCat("all workers wait, and nothing was trained for ", Readable(stalls_.WaitMax()), "; its clock, ",
                     clocks[*slowest], ", is the smallest, so it holds the others up. Its log says what it waits for"));
  }
  Apply(actions);
  if (in_vain) End(wire::JOB_FAILED, *in_vain);
}

void Controller::FailIfDeserted(absl::Time now) {
  std::vector<std::string> gone;
  for (const auto& [id, worker] : membership_.workers()) {
    if (worker.state != WorkerState::kDead && worker.state != WorkerState::kLeft) {
      deserted_since_.reset();
      return;
    }
    gone.push_back(absl::StrCat(worker.name, " (", worker.reason, ")"));
  }
  if (!deserted_since_) {
    deserted_since_ = now;
    events_.Add(
        absl::StrCat("no worker is left; waiting up to ", Readable(config_.timeouts.startup), " for a new one"));
  }
  if (now - *deserted_since_ <= config_.timeouts.startup) return;
  if (gone.size() > kNamesMax) gone.erase(gone.begin(), gone.end() - kNamesMax);
  End(wire::JOB_FAILED,
      absl::StrCat("no worker is left, and none has joined within ", Readable(config_.timeouts.startup),
                   "; the last ones: ", absl::StrJoin(gone, ", ")));
}

// --- End --------------------------------------------------------------------------------------------------------

bool Controller::Ended() const { return state_ != wire::JOB_STARTING && state_ != wire::JOB_TRAINING; }

bool Controller::Parting(absl::Time now) const {
  return Ended() && (end_kept_ || !config_.keeps_state || now - ended_ > config_.timeouts.worker_dead());
}

void Controller::End(wire::JobState state, const std::string& reason) {
  if (Ended()) return;
  const bool trained = state_ == wire::JOB_TRAINING;
  ended_ = time_.Now();
  if (trained && progress_.totals().samples > progress_.latest().totals.samples) AddReport(ended_);
  state_ = state;
  reason_ = reason;
  const absl::string_view how = state == wire::JOB_DONE ? "done" : state == wire::JOB_FAILED ? "failed" : "stopped";
  events_.Add(absl::StrFormat("the job is %s: %s", how, reason));
}

void Controller::Stopped(ServerRef server) {
  absl::MutexLock lock(&mutex_);
  if (IsSpare(server)) {
    Spares().erase(server.server);
  } else if (const auto member = membership_.servers().find(server.server);
             member != membership_.servers().end() && member->second.incarnation == server.incarnation) {
    stopped_.insert(server.server);
  } else {
    servers_.Disconnect(server);  // drained
  }
}

void Controller::Refused(ServerRef server, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (IsSpare(server)) return DropSpare(server.server, std::string(status.message()));
  auto found = membership_.servers().find(server.server);
  if (found == membership_.servers().end() || found->second.incarnation != server.incarnation) return;
  // One that cannot be told to stop needs no more waiting for.
  stopped_.insert(server.server);
  if (found->second.state != ServerState::kLive && !Ended()) return;  // it was given up meanwhile
  End(wire::JOB_FAILED, absl::StrCat(Called("server", found->second.name),
                                     " refused a call of the scheduler: ", std::string(status.message())));
}

bool Controller::AllWorkersGone(absl::Time now) const {
  for (const auto& [id, worker] : membership_.workers()) {
    if (worker.state == WorkerState::kDead || worker.state == WorkerState::kLeft) continue;
    const bool told = told_to_leave_.contains({id, worker.incarnation});
    if (!told || now - worker.heard <= config_.timeouts.lease()) return false;
  }
  return true;
}

bool Controller::AllServersGone() const {
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state == ServerState::kLive && !stopped_.contains(id)) return false;
  }
  return Spares().empty();
}

void Controller::PartTick(absl::Time now) {
  if (!Parting(now)) return;
  if (stopping_ == absl::InfiniteFuture()) {
    WatchCheckpoints(now);
    if (!AllWorkersGone(now) && now - ended_ <= config_.timeouts.worker_dead()) return;
    if (AwaitsLastCheckpoint(now)) return;
    stopping_ = now;
    wire::StopRequest request;
    request.set_job(config_.id.value());
    request.set_reason(reason_);
    request.set_remove_snapshots(state_ == wire::JOB_DONE);
    for (const auto& [id, server] : membership_.servers()) {
      if (server.state == ServerState::kLive) servers_.Stop({id, server.incarnation}, request);
    }
    for (const auto& [id, spare] : Spares()) servers_.Stop({id, spare.incarnation}, request);
  }
  const bool alone = AllServersGone() || now - stopping_ > config_.timeouts.failover();
  if (alone && (config_.unwatched || status_seen_ || now - stopping_ >= kStatusLinger)) finished_ = true;
}

bool Controller::finished() const {
  absl::MutexLock lock(&mutex_);
  return finished_;
}

wire::JobState Controller::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

}  // namespace slackline::scheduler

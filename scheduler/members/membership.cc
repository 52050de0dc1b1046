#include "scheduler/members/membership.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "scheduler/base/forgotten.h"

namespace slackline::scheduler {
namespace {

// Largest number of changes that are remembered. A server that is further behind gets the whole set.
constexpr size_t kChangesMax = 65536;

std::string Silence(absl::Duration silent, absl::Duration allowed) {
  return absl::StrCat("silent for ", absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1))), ", allowed is ",
                      absl::FormatDuration(allowed));
}

bool InSet(WorkerState state) { return state == WorkerState::kJoining || state == WorkerState::kLive; }

bool IsGone(WorkerState state) { return state == WorkerState::kLeft || state == WorkerState::kDead; }

}  // namespace

absl::string_view ToString(WorkerState state) {
  switch (state) {
    case WorkerState::kJoining:
      return "joining";
    case WorkerState::kLive:
      return "live";
    case WorkerState::kStandby:
      return "standby";
    case WorkerState::kLeft:
      return "left";
    case WorkerState::kDead:
      return "dead";
  }
  return "unknown";
}

absl::string_view ToString(ServerState state) {
  switch (state) {
    case ServerState::kLive:
      return "live";
    case ServerState::kDead:
      return "dead";
    case ServerState::kLeft:
      return "left";
  }
  return "unknown";
}

Membership::Membership(const Config& config) : config_(config), places_(config.servers) {}

// --- Servers ----------------------------------------------------------------------------------------------------

absl::StatusOr<Membership::Registered> Membership::RegisterServer(const std::string& name, const std::string& address,
                                                                  absl::Time now, MembershipActions& actions) {
  auto known = std::find_if(servers_.begin(), servers_.end(), [&](const auto& s) { return s.second.name == name; });
  ServerId id;
  if (known != servers_.end()) {
    id = known->first;
  } else if (servers_.size() < places_) {
    id = ServerId(static_cast<uint32_t>(servers_.size()) + 1);
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", name, " is one too many: the job has ", places_, " servers, and all are known"));
  }
  last_incarnation_ = last_incarnation_.Next();
  ReplaceServer(id, name, address, last_incarnation_, now, actions);
  return Registered{id.value(), last_incarnation_};
}

void Membership::ReplaceServer(ServerId id, const std::string& name, const std::string& address,
                               Incarnation incarnation, absl::Time now, MembershipActions& actions) {
  Server server;
  server.name = name;
  server.address = address;
  server.incarnation = incarnation;
  server.heard = now;
  servers_[id] = std::move(server);
  // A new life knows nobody: it acknowledges the set before anybody counts as live or fenced on it.
  SendSet(id, servers_[id], actions);
}

void Membership::RemoveServer(ServerId id, MembershipActions& actions) {
  servers_.erase(id);
  --places_;
  Settle(actions);
}

void Membership::SetBacked(ServerId server, Incarnation incarnation, bool backed) {
  const auto found = servers_.find(server);
  if (found != servers_.end() && found->second.incarnation == incarnation) found->second.backed = backed;
}

absl::Status Membership::HeartbeatServer(ServerId server, Incarnation incarnation, absl::Time now) {
  auto found = servers_.find(server);
  if (found == servers_.end() || found->second.incarnation != incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", server.value(), " incarnation ", incarnation.value(), " is not a member"));
  }
  if (found->second.state != ServerState::kLive) {
    return absl::FailedPreconditionError(absl::StrCat("server ", found->second.name, " was given up as ",
                                                      ToString(found->second.state), ": ", found->second.reason));
  }
  found->second.heard = now;
  return absl::OkStatus();
}

void Membership::MembersInstalled(ServerId server, Incarnation server_incarnation, Epoch epoch,
                                  Clock64 clock_min_largest, MembershipActions& actions) {
  auto found = servers_.find(server);
  if (found == servers_.end() || found->second.incarnation != server_incarnation) return;
  if (found->second.state != ServerState::kLive || epoch <= found->second.acknowledged) return;
  found->second.acknowledged = epoch;
  found->second.clock_min_largest = clock_min_largest;
  SendSet(server, found->second, actions);
  Settle(actions);
}

void Membership::Excuse(WorkerId worker, Incarnation incarnation, absl::Time until) {
  if (Worker* found = Find(worker, incarnation); found != nullptr) found->excused_until = until;
}

void Membership::ServerLost(ServerId server, Incarnation incarnation, std::string reason, MembershipActions& actions) {
  auto found = servers_.find(server);
  if (found == servers_.end() || found->second.incarnation != incarnation) return;
  LoseServer(server, found->second, ServerState::kDead, std::move(reason), actions);
}

void Membership::LoseServer(ServerId id, Server& server, ServerState state, std::string reason,
                            MembershipActions& actions) {
  if (server.state != ServerState::kLive) return;
  server.state = state;
  server.reason = reason;
  actions.push_back(ServerDeadAction{id, server.incarnation, std::move(reason)});
  Settle(actions);
}

bool Membership::AllServersPresent() const {
  return servers_.size() == places_ && std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
           return server.second.state == ServerState::kLive;
         });
}

// --- Workers ----------------------------------------------------------------------------------------------------

absl::StatusOr<Membership::Registered> Membership::RegisterWorker(const std::string& name,
                                                                  std::optional<WorkerId> previous, absl::Time now,
                                                                  MembershipActions& actions) {
  if (previous && !workers_.contains(*previous)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", name, " says it was number ", previous->value(), ", which was never given"));
  }
  if (CountIn(WorkerState::kJoining) + CountIn(WorkerState::kLive) >= config_.workers_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", name, " is one too many: at most ", config_.workers_max, " are allowed"));
  }
  if (!previous && last_worker_.value() >= kWorkerNumberMax) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", name, " is registration ",
                                                     uint64_t{kWorkerNumberMax} + 1, " of this run; at most ",
                                                     kWorkerNumberMax, " are allowed"));
  }
  if (!previous) last_worker_ = last_worker_.Next();
  const WorkerId id = previous.value_or(last_worker_);
  // The same process again while its earlier life is still in the set: that life is over.
  if (previous && InSet(workers_[id].state)) {
    Remove(id, workers_[id], WorkerState::kDead, "registered again", actions);
  }
  last_incarnation_ = last_incarnation_.Next();
  Worker worker;
  worker.name = name;
  worker.incarnation = last_incarnation_;
  worker.heard = now;
  if (previous) {
    --counts_[static_cast<size_t>(workers_[id].state)];
    departed_.erase(workers_[id].departed);
    names_.erase({workers_[id].name, id});
  }
  names_.emplace(name, id);
  ++counts_[static_cast<size_t>(worker.state)];
  worker.joined_epoch = epoch_.Next();
  joining_.emplace(worker.joined_epoch, id);
  workers_[id] = std::move(worker);
  ChangeSet(id, actions);
  return Registered{id.value(), last_incarnation_};
}

absl::Status Membership::HeartbeatWorker(WorkerId worker, Incarnation incarnation, absl::Time now) {
  auto found = workers_.find(worker);
  if (found == workers_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker.value(), " is not a member"));
  }
  if (found->second.incarnation != incarnation) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", found->second.name, " says incarnation ",
                                                      incarnation.value(), ", the member is incarnation ",
                                                      found->second.incarnation.value()));
  }
  if (IsGone(found->second.state)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", found->second.name, " was given up as ",
                                                      ToString(found->second.state), ": ", found->second.reason));
  }
  found->second.heard = now;
  return absl::OkStatus();
}

Membership::Worker* Membership::Find(WorkerId worker, Incarnation incarnation) {
  auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.incarnation != incarnation) return nullptr;
  return &found->second;
}

std::vector<WorkerId> Membership::Named(const std::string& name) const {
  std::vector<WorkerId> found;
  for (auto at = names_.lower_bound({name, WorkerId()}); at != names_.end() && at->first == name; ++at) {
    found.push_back(at->second);
  }
  return found;
}

void Membership::Standby(WorkerId worker, Incarnation incarnation, MembershipActions& actions) {
  if (Worker* found = Find(worker, incarnation); found != nullptr && InSet(found->state)) {
    Remove(worker, *found, WorkerState::kStandby, "no data to train on", actions);
  }
}

void Membership::Leave(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions) {
  Worker* found = Find(worker, incarnation);
  if (found == nullptr || IsGone(found->state)) return;
  Remove(worker, *found, WorkerState::kLeft, std::move(reason), actions);
}

void Membership::Expel(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions) {
  Worker* found = Find(worker, incarnation);
  if (found == nullptr || IsGone(found->state)) return;
  Remove(worker, *found, WorkerState::kDead, std::move(reason), actions);
}

void Membership::Remove(WorkerId id, Worker& worker, WorkerState state, std::string reason,
                        MembershipActions& actions) {
  const bool was_in_set = InSet(worker.state);
  joining_.erase({worker.joined_epoch, id});
  Enter(id, worker, state);
  worker.reason = reason;
  if (state == WorkerState::kDead) {
    actions.push_back(WorkerDeadAction{id, worker.incarnation, std::move(reason)});
  }
  if (!was_in_set) return;
  ChangeSet(id, actions);
  unfenced_.push_back({id, worker.incarnation, epoch_});
  Settle(actions);
}

// --- The set ----------------------------------------------------------------------------------------------------

std::vector<MemberRef> Membership::Members() const {
  std::vector<MemberRef> members;
  for (const auto& [id, worker] : workers_) {
    if (InSet(worker.state)) members.push_back({id, worker.incarnation, worker.name});
  }
  return members;
}

void Membership::Enter(WorkerId id, Worker& worker, WorkerState state) {
  --counts_[static_cast<size_t>(worker.state)];
  worker.state = state;
  ++counts_[static_cast<size_t>(state)];
  if (!IsGone(state)) return;
  worker.departed = ++departures_;
  departed_[worker.departed] = id;
}

std::vector<WorkerId> Membership::ForgetDeparted() {
  std::vector<WorkerId> forgotten;
  if (departed_.size() <= config_.departed_max) return forgotten;
  std::set<WorkerId> unfenced;
  for (const Unfenced& one : unfenced_) unfenced.insert(one.worker);
  for (auto at = departed_.begin(); at != departed_.end() && departed_.size() > config_.departed_max;) {
    if (unfenced.contains(at->second)) {
      ++at;
      continue;
    }
    forgotten.push_back(at->second);
    names_.erase({workers_.at(at->second).name, at->second});
    workers_.erase(at->second);
    at = departed_.erase(at);
  }
  return forgotten;
}

void Membership::ChangeSet(std::optional<WorkerId> changed, MembershipActions& actions) {
  epoch_ = epoch_.Next();
  if (changed) changes_[epoch_] = *changed;
  if (changes_.size() > kChangesMax) {
    changes_from_ = changes_.begin()->first;
    changes_.erase(changes_.begin());
  }
  for (auto& [id, server] : servers_) {
    if (server.state == ServerState::kLive) SendSet(id, server, actions);
  }
}

void Membership::SendSet(ServerId id, Server& server, MembershipActions& actions) {
  const bool on_its_way = server.sent > server.acknowledged;
  if (on_its_way || server.sent == epoch_) return;
  server.sent = epoch_;
  SendMembersAction action = {id, server.incarnation, epoch_, {}, {}, {}};
  Describe(server, action);
  actions.push_back(std::move(action));
}

void Membership::Describe(const Server& server, SendMembersAction& action) const {
  if (server.acknowledged == Epoch() || server.acknowledged < changes_from_) {
    action.members = Members();
    return;
  }
  action.since = server.acknowledged;
  std::set<WorkerId> changed;
  for (auto change = changes_.upper_bound(server.acknowledged); change != changes_.end(); ++change) {
    changed.insert(change->second);
  }
  for (const WorkerId id : changed) {
    const auto worker = workers_.find(id);
    if (worker != workers_.end() && InSet(worker->second.state)) {
      action.members.push_back({id, worker->second.incarnation, worker->second.name});
    } else {
      action.gone.push_back(id);
    }
  }
}

void Membership::Settle(MembershipActions& actions) {
  // A server that is gone takes nothing from anybody; a place never filled has no state to protect either, but a
  // worker must wait for it, because it will hold weights.
  Epoch fenced_to = epoch_;
  Epoch live_to = epoch_;
  Clock64 first_clock;
  for (const auto& [id, server] : servers_) {
    if (server.state == ServerState::kLive) fenced_to = std::min(fenced_to, server.acknowledged);
    live_to = std::min(live_to, server.state == ServerState::kLive ? server.acknowledged : Epoch());
    first_clock = std::max(first_clock, server.clock_min_largest);
  }
  if (servers_.size() < places_) live_to = Epoch();
  while (!joining_.empty() && joining_.begin()->first <= live_to) {
    const WorkerId id = joining_.begin()->second;
    joining_.erase(joining_.begin());
    Worker& worker = workers_.at(id);
    Enter(id, worker, WorkerState::kLive);
    worker.first_clock = first_clock;
    actions.push_back(WorkerLiveAction{id, worker.incarnation, first_clock});
  }
  while (!unfenced_.empty() && unfenced_.front().left_epoch <= fenced_to) {
    actions.push_back(WorkerFencedAction{unfenced_.front().worker, unfenced_.front().incarnation});
    unfenced_.pop_front();
  }
}

void Membership::Tick(absl::Time now, MembershipActions& actions) {
  const bool stated = config_.server_silence_max > absl::ZeroDuration();
  for (auto& [id, server] : servers_) {
    const absl::Duration server_max =
        stated && !server.backed ? config_.server_silence_max : config_.timeouts.server_dead();
    const absl::Duration silent = now - server.heard;
    if (server.state == ServerState::kLive && silent > server_max) {
      LoseServer(id, server, ServerState::kDead, Silence(silent, server_max), actions);
    }
  }
  for (auto& [id, worker] : workers_) {
    const absl::Duration silent = now - worker.heard;
    if (IsGone(worker.state) || silent <= config_.timeouts.worker_dead() || now < worker.excused_until) continue;
    const bool excused = worker.excused_until > worker.heard;
    Remove(id, worker, WorkerState::kDead,
           absl::StrCat(Silence(silent, config_.timeouts.worker_dead()), excused ? ", and its lease is over" : ""),
           actions);
  }
}

void Membership::Overslept(absl::Duration gap, absl::Time now) {
  // Who was heard since is not heard in the future.
  for (auto& [id, server] : servers_) server.heard = std::min(now, server.heard + gap);
  for (auto& [id, worker] : workers_) worker.heard = std::min(now, worker.heard + gap);
}

// --- The state --------------------------------------------------------------------------------------------------

Membership::State Membership::Save() const {
  State state = {epoch_,
                 last_incarnation_,
                 workers_,
                 servers_,
                 last_worker_,
                 CountIn(WorkerState::kLeft),
                 CountIn(WorkerState::kDead)};
  for (const auto& [order, id] : departed_) {
    --(workers_.at(id).state == WorkerState::kLeft ? state.left_forgotten : state.dead_forgotten);
  }
  return state;
}

void Membership::Restore(State state, absl::Span<const std::pair<WorkerId, Incarnation>> holders, absl::Time now,
                         MembershipActions& actions) {
  SLACKLINE_CHECK(workers_.empty() && servers_.empty());
  epoch_ = Epoch(state.epoch.value() + kForgottenMax);
  last_incarnation_ = Incarnation(state.last_incarnation.value() + kForgottenMax);
  workers_ = std::move(state.workers);
  last_worker_ = state.last_worker;
  std::vector<std::pair<Incarnation, WorkerId>> departed;
  counts_[static_cast<size_t>(WorkerState::kLeft)] = state.left_forgotten;
  counts_[static_cast<size_t>(WorkerState::kDead)] = state.dead_forgotten;
  for (auto& [id, worker] : workers_) {
    last_worker_ = std::max(last_worker_, id);
    names_.emplace(worker.name, id);
    ++counts_[static_cast<size_t>(worker.state)];
    worker.heard = now;
    worker.joined_epoch = epoch_.Next();
    if (worker.state == WorkerState::kJoining) joining_.emplace(worker.joined_epoch, id);
    if (IsGone(worker.state)) departed.emplace_back(worker.incarnation, id);
  }
  // The order of departures is not saved; that of incarnations is close to it.
  std::sort(departed.begin(), departed.end());
  for (const auto& [incarnation, id] : departed) {
    workers_[id].departed = ++departures_;
    departed_[departures_] = id;
  }
  servers_ = std::move(state.servers);
  for (auto& [id, server] : servers_) {
    server.sent = server.acknowledged = Epoch();
    server.clock_min_largest = Clock64();
    server.heard = now;
  }
  ChangeSet(std::nullopt, actions);
  for (const auto& [worker, incarnation] : holders) {
    const Worker* const found = Find(worker, incarnation);
    if (found == nullptr || !InSet(found->state)) unfenced_.push_back({worker, incarnation, epoch_});
  }
}

}  // namespace slackline::scheduler

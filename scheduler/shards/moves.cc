#include "scheduler/shards/moves.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_kinds.h"
#include "common/process/kill_point.h"
#include "common/text/counted.h"
#include "scheduler/shards/link_shares.h"
#include "scheduler/shards/rebalance.h"

namespace slackline::scheduler {

// --- Wishes -----------------------------------------------------------------------------------------------------

absl::Status Moves::CanMove() const {
  const job::Job& job = setting_.job;
  if (HasBackups(job)) {
    return absl::FailedPreconditionError(
        "durability.mode is replicated: shards that have backups cannot move; allowed are snapshot and none");
  }
  if (const ModeFacts& mode = FactsOf(job.consistency()); mode.answers_first) {
    return absl::FailedPreconditionError(
        absl::StrCat("consistency.mode is ", mode.name, mode.with,
                     ", which answers a push before it is in a step: its shards cannot move"));
  }
  if (job.consistency().delay_compensation() == job::DelayCompensation::ADAPTIVE) {
    return absl::FailedPreconditionError(
        "consistency.delay_compensation is adaptive, whose steps cannot be followed: its shards cannot move");
  }
  return absl::OkStatus();
}

uint32_t Moves::ServersWanted() const {
  const size_t there = membership_.places() + joining_.size() - draining_.size();
  return static_cast<uint32_t>(there) + to_come_;
}

absl::StatusOr<wire::ChangeServersReply> Moves::Change(const wire::ChangeServersRequest& request) {
  if (absl::Status can = CanMove(); !can.ok()) return can;
  if (request.add() == 0 && request.drain().empty()) {
    return absl::InvalidArgumentError("a change of no servers: allowed are some to add, and names to drain");
  }
  const uint64_t most = shards_.places().size();
  if (request.add() > most || ServersWanted() + request.add() > most) {
    return absl::FailedPreconditionError(absl::StrCat("the job has ", Counted(shards_.places().size(), "shard"),
                                                      " and will have ", Counted(ServersWanted(), "server"), ": ",
                                                      request.add(), " more would be more servers than shards"));
  }
  std::set<ServerId> leaving;
  for (const std::string& name : request.drain()) {
    const std::optional<ServerId> id = ServerNamed(name);
    if (!id) return absl::NotFoundError(absl::StrCat("no server is called ", name, "; there are ", ServerNames()));
    if (!draining_.contains(*id)) leaving.insert(*id);
  }
  if (leaving.size() >= ServersWanted() + request.add()) {
    return absl::FailedPreconditionError(absl::StrCat("of ", Counted(ServersWanted(), "server"), " ", leaving.size(),
                                                      " would leave, and none would be left to hold the shards"));
  }
  to_come_ += request.add();
  added_ += request.add();
  if (request.add() > 0) {
    events_.Add(absl::StrCat(Counted(request.add(), "server"), " may join; the job will have ", ServersWanted()));
  }
  for (const ServerId id : leaving) {
    draining_.insert(id);
    events_.Add(
        absl::StrCat(Called("server", membership_.servers().at(id).name), " will give up its shards and leave"));
  }
  wire::ChangeServersReply reply;
  reply.set_servers(ServersWanted());
  return reply;
}

std::optional<ServerId> Moves::ServerNamed(const std::string& name) const {
  for (const auto& [id, server] : membership_.servers()) {
    if (server.name == name) return id;
  }
  return std::nullopt;
}

std::string Moves::ServerNames() const {
  return absl::StrJoin(membership_.servers(), ", ",
                       [](std::string* out, const auto& server) { out->append(server.second.name); });
}

// --- Servers without shards -------------------------------------------------------------------------------------

absl::StatusOr<ServerRef> Moves::Register(const wire::RegisterServerRequest& request, const JobFacts& facts) {
  if (!shards_.placed() || !facts.training() || ServerNamed(request.name())) {
    return absl::NotFoundError("a server of the job");
  }
  for (const auto& [id, joining] : joining_) {
    if (joining.name != request.name()) continue;
    Drop(id, "was started again", facts);
    break;
  }
  if (to_come_ == 0) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.name(), " is one too many: the job has ",
                                                      Counted(membership_.places() + joining_.size(), "server"),
                                                      "; `slackline servers add` makes room for more"));
  }
  --to_come_;
  drained_.erase(request.name());
  const ServerId id = NextServerId();
  const SpareServer& joining = joining_[id] = SpareOf(request, membership_.NewIncarnation(), facts.now);
  events_.Add(absl::StrCat(Called("server", joining.name), " is there at ", joining.address, ", to get shards"));
  const ServerRef ref = {id, joining.incarnation};
  calls_.Connect(ref, joining.name, joining.address, observer_);
  return ref;
}

ServerId Moves::NextServerId() const {
  uint32_t last = 0;
  if (!membership_.servers().empty()) last = membership_.servers().rbegin()->first.value();
  if (!joining_.empty()) last = std::max(last, joining_.rbegin()->first.value());
  // Its link and its heartbeats may still be about.
  for (const auto& [name, drained] : drained_) last = std::max(last, drained.server.value());
  return ServerId(last + 1);
}

void Moves::Drop(ServerId id, const std::string& why, const JobFacts& facts) {
  const auto found = joining_.find(id);
  if (found == joining_.end()) return;
  const SpareServer joining = found->second;
  if (move_ && move_->to == id) GiveUp(absl::StrCat(joining.name, " is dead"), facts);
  joining_.erase(found);
  ++to_come_;
  calls_.Disconnect({id, joining.incarnation});
  if (!facts.ended()) {
    events_.Add(absl::StrCat(Called("server", joining.name), ", which has no shards yet, is dead: ", why),
                facts.deaths);
  }
}

// --- A move -----------------------------------------------------------------------------------------------------

std::string Moves::NameOf(ServerId id) const {
  if (const auto member = membership_.servers().find(id); member != membership_.servers().end()) {
    return member->second.name;
  }
  const auto joining = joining_.find(id);
  return joining != joining_.end() ? joining->second.name : absl::StrCat("server ", id.value());
}

std::map<ServerId, double> Moves::Shares() const {
  std::map<ServerId, MachineLink> links;
  const auto note = [&](ServerId id, const wire::LocalAddress& local) {
    links[id] = {local.machine(), local.link_mbit()};
  };
  for (const auto& [id, server] : membership_.servers()) {
    const wire::LocalAddress* local = shards_.LocalOf(id);
    note(id, local == nullptr ? wire::LocalAddress() : *local);
  }
  for (const auto& [id, joining] : joining_) note(id, joining.local.value_or(wire::LocalAddress()));
  return LinkShares(links);
}

std::string Moves::Describe(const Move& move) const {
  return absl::StrCat(Counted(move.shards.size(), "shard"), " from ", NameOf(move.from), " to ", NameOf(move.to));
}

void Moves::WatchSpares(const JobFacts& facts) {
  std::vector<std::pair<ServerId, std::string>> dead;
  for (const auto& [id, joining] : joining_) {
    const absl::Duration silent = facts.now - joining.heard;
    if (silent > setting_.timeouts.worker_dead()) dead.emplace_back(id, absl::StrCat("silent for ", Readable(silent)));
  }
  for (const auto& [id, why] : dead) Drop(id, why, facts);
  for (auto& [name, drained] : drained_) {
    // A drained server that has died is not told to stop for ever.
    if (facts.now - drained.since <= setting_.timeouts.worker_dead()) continue;
    calls_.Disconnect({drained.server, drained.incarnation});
    drained.since = absl::InfiniteFuture();
  }
}

void Moves::Tick(bool checkpoint, const JobFacts& facts) {
  WatchSpares(facts);
  if (!facts.training()) return;
  FinishDrains(facts.now);
  if (!move_) return Plan(facts);
  if (Decided()) {
    if (Unsaved() && !setting_.keeps_state) Tell();
    return;
  }
  if (move_->in_step > 0) {
    const bool there = membership_.servers().at(move_->from).state == ServerState::kLive;
    if (!checkpoint && there) Decide(facts.now);
    return;
  }
  const absl::Duration allowed = absl::Seconds(setting_.job.durability().server_return_s());
  if (facts.now - move_->begun > allowed) {
    GiveUp(absl::StrCat(NameOf(move_->to), " has not caught up within ", absl::FormatDuration(allowed),
                        " (durability.server_return_s)"),
           facts);
  }
}

void Moves::Plan(const JobFacts& facts) {
  rebalances_ = rebalances_ || !joining_.empty();
  // With backups nothing moves, however they were placed.
  rebalances_ = rebalances_ && !HasBackups(setting_.job);
  if ((!rebalances_ && draining_.empty()) || facts.now < again_) return;
  std::set<ServerId> servers, leaving = draining_;
  for (const auto& [id, server] : membership_.servers()) {
    // Shards of a server that is not there cannot move, nor can any go there.
    if (server.state != ServerState::kLive || !shards_.installed(id)) return;
    servers.insert(id);
  }
  for (const auto& [id, joining] : joining_) servers.insert(id);
  const std::optional<ShardMove> next =
      NextMove(shards_.places(), servers, leaving, Shares(), shards_.layout().frozen_from);
  if (!next) {
    if (joining_.empty()) rebalances_ = false;
    return;
  }
  move_ = Move();
  Move& move = *move_;
  move.number = ++last_number_;
  move.from = next->from;
  move.to = next->to;
  move.shards = next->shards;
  move.from_incarnation = membership_.servers().at(next->from).incarnation;
  const auto joining = joining_.find(next->to);
  move.to_incarnation =
      joining != joining_.end() ? joining->second.incarnation : membership_.servers().at(next->to).incarnation;
  move.begun = facts.now;
  events_.Add(absl::StrCat(Describe(move), ": copied while training goes on"), Audience::kRecord);
  SendTake();
}

void Moves::SendTake() {
  wire::TakeShardsRequest request = shards_.TakeRequest(move_->shards, move_->to, move_->to_incarnation);
  request.set_move(move_->number);
  wire::ReplicationSource& source = *request.mutable_from();
  source = shards_.SourceOf(move_->from, membership_.servers().at(move_->from));
  source.set_server(move_->from.value());
  calls_.TakeShards({move_->to, move_->to_incarnation}, request);
}

uint64_t Moves::Hear(ServerId id, const wire::BackupProgress& progress) {
  if (progress.attachment() == 0 || progress.move() == 0) return 0;
  const bool from_here = move_ && move_->from == id;
  const bool ours = from_here && progress.move() == move_->number &&
                    Incarnation(progress.backup_incarnation()) == move_->to_incarnation;
  // A decided move stays decided: the giving server answers nobody for these shards until it hears that they have
  // moved.
  if (from_here && Decided()) return 0;
  if (ours && !progress.lost()) {
    if (progress.in_step() && progress.attachment() > move_->released) move_->in_step = progress.attachment();
    return 0;
  }
  // A scheduler that was started again does not know what the one before has decided before the server has taken that.
  if (!shards_.installed(id)) return 0;
  if (ours) {
    move_->released = std::max(move_->released, progress.attachment());
    move_->in_step = 0;
  }
  return progress.attachment();
}

void Moves::Decide(absl::Time now) {
  move_->before = shards_.generation();
  shards_.Move(move_->shards, move_->from, move_->to);
  if (const auto found = joining_.find(move_->to); found != joining_.end()) {
    const SpareServer joining = found->second;
    joining_.erase(found);
    if (joining.local) shards_.SetLocal(move_->to, joining.local);
    owner_.GotShards(move_->to, move_->from);
    membership_.AddPlace();
    membership_.ReplaceServer(move_->to, joining.name, joining.address, joining.incarnation, now, move_->to_actions);
  } else {
    const Membership::Server to = membership_.servers().at(move_->to);
    membership_.ReplaceServer(move_->to, to.name, to.address, to.incarnation, now, move_->to_actions);
  }
  const Membership::Server from = membership_.servers().at(move_->from);
  membership_.ReplaceServer(move_->from, from.name, from.address, from.incarnation, now, move_->from_actions);
  move_->stage = Stage::kDecided;
  kill_point::Passed("move-decided");
}

void Moves::Kept(const state::Scheduler& saved) {
  if (!Unsaved() || saved.placement().move().number() != move_->number) return;
  kill_point::Passed("move-saved");
  Tell();
}

void Moves::Tell() {
  move_->stage = Stage::kTold;
  if (membership_.servers().at(move_->from).state != ServerState::kLive) return TellTaker();
  owner_.ShardsChanged(move_->from, std::exchange(move_->from_actions, {}));
}

void Moves::TellTaker() {
  move_->stage = Stage::kGivenUp;
  const Membership::Server& to = membership_.servers().at(move_->to);
  // A dead server gets its shards when it comes back.
  if (to.state != ServerState::kLive) return;
  // A later life of the server has got the members already.
  const bool same = to.incarnation == move_->to_incarnation;
  owner_.ShardsChanged(move_->to, same ? std::exchange(move_->to_actions, {}) : MembershipActions());
}

void Moves::Installed(ServerId server, const JobFacts& facts) {
  if (!Decided() || Unsaved()) return;
  if (server == move_->from && move_->stage < Stage::kGivenUp) {
    kill_point::Passed("move-given-up");
    TellTaker();
  } else if (server == move_->to && move_->stage == Stage::kGivenUp) {
    const Move move = *std::exchange(move_, std::nullopt);
    ++made_;
    events_.Add(absl::StrCat(Describe(move), ": moved, ", Readable(facts.now - move.begun), " after it was begun"));
    FinishDrains(facts.now);
  }
}

void Moves::ServerLost(ServerId server, const JobFacts& facts) {
  if (!move_) return;
  if (!Decided()) {
    if (server == move_->from || server == move_->to) GiveUp(absl::StrCat(NameOf(server), " is dead"), facts);
  } else if (server == move_->from && move_->stage == Stage::kTold) {
    TellTaker();
  }
}

void Moves::Refused(ServerId server, uint64_t number, const absl::Status& status, const JobFacts& facts) {
  const bool ours = move_ && !Decided() && move_->number == number && move_->to == server;
  if (ours) GiveUp(absl::StrCat(NameOf(server), " refuses them: ", std::string(status.message())), facts);
}

void Moves::GiveUp(const std::string& why, const JobFacts& facts) {
  const Move move = *std::exchange(move_, std::nullopt);
  const auto member = membership_.servers().find(move.to);
  const bool there = member != membership_.servers().end() && member->second.state == ServerState::kLive &&
                     member->second.incarnation == move.to_incarnation;
  const auto joining = joining_.find(move.to);
  const bool joins = joining != joining_.end() && joining->second.incarnation == move.to_incarnation;
  // The taking server drops the copies that it has made.
  if (there || joins) SendNothingToTake({move.to, move.to_incarnation});
  again_ = facts.now + setting_.timeouts.worker_dead();
  if (!facts.ended()) {
    events_.Add(absl::StrCat(Describe(move), ": they stay where they are for now: ", why, "; tried again in ",
                             Readable(setting_.timeouts.worker_dead())));
  }
}

void Moves::SendNothingToTake(ServerRef server) {
  wire::TakeShardsRequest nothing = shards_.TakeRequest({}, server.server, server.incarnation);
  nothing.set_move(++last_number_);
  calls_.TakeShards(server, nothing);
}

uint64_t Moves::PublicGeneration() const {
  if (!shards_.placed()) return 0;
  return (Unsaved() ? move_->before : shards_.generation()).value();
}

void Moves::FinishDrains(absl::Time now) {
  if (move_) return;
  for (const ServerId id : std::set<ServerId>(draining_)) {
    if (shards_.Holds(id)) continue;
    const Membership::Server server = membership_.servers().at(id);
    draining_.erase(id);
    MembershipActions actions;
    membership_.RemoveServer(id, actions);
    Depose(drained_, server.name, {server.incarnation, id, "has given up its shards", now});
    if (server.state == ServerState::kLive) {
      wire::StopRequest request;
      request.set_job(setting_.id.value());
      request.set_reason("it was drained");
      calls_.Stop({id, server.incarnation}, request);
    }
    shards_.Forget(id);
    events_.Add(absl::StrCat(Called("server", server.name), " has no shards any more and leaves; the job has ",
                             Counted(membership_.servers().size(), "server")));
    owner_.ServerLeft(id, actions);
  }
}

// --- What outlives the scheduler --------------------------------------------------------------------------------

void Moves::Save(state::Scheduler& state) const {
  const bool changed = shards_.moved() || added_ > 0 || !draining_.empty() || last_number_ > 0;
  if (!shards_.placed() || !changed) return;
  state::Placement& placement = *state.mutable_placement();
  placement.set_to_come(to_come_);
  for (const ShardPlace& place : shards_.places()) placement.add_servers(place.server.value());
  placement.set_added(added_);
  placement.set_places(membership_.places());
  for (const ServerId id : draining_) placement.add_draining(id.value());
  for (const auto& [id, joining] : joining_) {
    state::Server& out = *placement.add_joining();
    out.set_server(id.value());
    out.set_name(joining.name);
    out.set_address(joining.address);
    out.set_incarnation(joining.incarnation.value());
    if (joining.local) *out.mutable_local() = *joining.local;
  }
  for (const auto& [name, drained] : drained_) {
    state::Server& out = *placement.add_drained();
    out.set_server(drained.server.value());
    out.set_name(name);
    out.set_incarnation(drained.incarnation.value());
    out.set_reason(drained.reason);
  }
  placement.set_last_move(last_number_);
  if (!Decided()) return;
  state::Move& move = *placement.mutable_move();
  move.set_number(move_->number);
  move.set_from(move_->from.value());
  move.set_to(move_->to.value());
}

void Moves::Restore(const state::Scheduler& state, absl::Time now) {
  // Moves that were begun since the save.
  constexpr uint64_t kForgottenMoves = 1'000;
  const state::Placement& placement = state.placement();
  last_number_ = placement.last_move() + kForgottenMoves;
  if (!state.has_placement() || !shards_.placed()) return;
  shards_.RestorePlaces(placement);
  added_ = placement.added();
  to_come_ = placement.to_come();
  rebalances_ = true;
  for (const state::Server& from : placement.drained()) {
    Depose(drained_, from.name(), {Incarnation(from.incarnation()), ServerId(from.server()), from.reason(), now});
  }
  for (const uint32_t server : placement.draining()) draining_.insert(ServerId(server));
  for (const state::Server& from : placement.joining()) {
    const ServerId id(from.server());
    const SpareServer& joining = joining_[id] = SpareOf(from, Incarnation(from.incarnation()), now);
    calls_.Connect({id, joining.incarnation}, joining.name, joining.address, observer_);
    SendNothingToTake({id, joining.incarnation});
  }
  if (!placement.has_move()) return;
  move_ = Move();
  Move& move = *move_;
  move.number = placement.move().number();
  move.from = ServerId(placement.move().from());
  move.to = ServerId(placement.move().to());
  for (const ShardPlace& place : shards_.places()) {
    if (place.server == move.to) move.shards.push_back(place.shard);
  }
  move.from_incarnation = membership_.servers().at(move.from).incarnation;
  move.to_incarnation = membership_.servers().at(move.to).incarnation;
  move.begun = now;
  const bool there = membership_.servers().at(move.from).state == ServerState::kLive;
  move.stage = there ? Stage::kTold : Stage::kGivenUp;
}

void Moves::Fill(absl::Time now, wire::GetStatusReply& reply) const {
  reply.set_servers_added(added_);
  reply.set_servers_wanted(ServersWanted());
  reply.set_servers_to_come(to_come_);
  reply.set_servers_change(move_ || rebalances_ || to_come_ > 0 || !draining_.empty() || !joining_.empty());
  if (move_) {
    const absl::string_view how = Decided() ? "changing hands" : move_->in_step > 0 ? "all is there" : "being copied";
    reply.set_moving(absl::StrCat(Describe(*move_), ", ", how, ", for ", Readable(now - move_->begun)));
  }
  const auto add = [&](ServerId id, const std::string& name, Incarnation incarnation) {
    wire::MemberStatus& member = *reply.add_members();
    member.set_role(wire::MEMBER_ROLE_SERVER);
    member.set_member(id.value());
    member.set_name(name);
    member.set_incarnation(incarnation.value());
    return &member;
  };
  for (const auto& [id, joining] : joining_) {
    wire::MemberStatus& member = *add(id, joining.name, joining.incarnation);
    member.set_state("joining");
    member.set_address(joining.address);
    member.set_silent_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - joining.heard)));
  }
  for (const auto& [name, drained] : drained_) {
    wire::MemberStatus& member = *add(drained.server, name, drained.incarnation);
    member.set_state("left");
    member.set_reason(drained.reason);
  }
}

}  // namespace slackline::scheduler

// Servers that come and go while training goes on: shards are copied and followed (TakeShards), and when the server
// that takes them has all, they are given up where they were and promoted where they are to be.
//
// Decided -> saved -> given up -> promoted. Before it is saved, a move that fails has changed nothing. From in step on
// the server that has the shards answers nothing that the other has not, until it hears that the move is off; so
// whoever of the two is asked, nothing that was answered is missing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/kill_point.h"
#include "scheduler/controller.h"
#include "scheduler/rebalance.h"

namespace slackline::scheduler {
namespace {

std::string Count(size_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

// --- Wishes -----------------------------------------------------------------------------------------------------

absl::Status Controller::CanChangeServers() const {
  const job::Job& job = config_.job;
  if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
  if (state_ == wire::JOB_STARTING) {
    return absl::FailedPreconditionError(absl::StrCat("servers change while training goes on; the job ", Missing()));
  }
  if (Replicated()) {
    return absl::FailedPreconditionError(
        "durability.mode is replicated: shards that have backups cannot move; allowed are snapshot and none");
  }
  if (job.consistency().mode() == job::Consistency::SOFTSYNC) {
    return absl::FailedPreconditionError(
        "consistency.mode is softsync, which answers a push before it is in a step: its shards cannot move");
  }
  if (job.consistency().delay_compensation() == job::DelayCompensation::ADAPTIVE) {
    return absl::FailedPreconditionError(
        "consistency.delay_compensation is adaptive, whose steps cannot be followed: its shards cannot move");
  }
  return absl::OkStatus();
}

uint32_t Controller::ServersWanted() const {
  const size_t there = membership_.places() + joining_.size() - draining_.size();
  return static_cast<uint32_t>(there) + servers_to_come_;
}

absl::StatusOr<wire::ChangeServersReply> Controller::ChangeServers(const wire::ChangeServersRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (absl::Status can = CanChangeServers(); !can.ok()) return can;
  if (request.add() == 0 && request.drain().empty()) {
    return absl::InvalidArgumentError("a change of no servers: allowed are some to add, and names to drain");
  }
  const uint64_t most = places_.size();
  if (request.add() > most || ServersWanted() + request.add() > most) {
    return absl::FailedPreconditionError(absl::StrCat("the job has ", Count(places_.size(), "shard"), " and will have ",
                                                      Count(ServersWanted(), "server"), ": ", request.add(),
                                                      " more would be more servers than shards"));
  }
  std::set<ServerId> leaving;
  for (const std::string& name : request.drain()) {
    const std::optional<ServerId> id = ServerNamed(name);
    if (!id) return absl::NotFoundError(absl::StrCat("no server is called ", name, "; there are ", ServerNames()));
    if (!draining_.contains(*id)) leaving.insert(*id);
  }
  if (leaving.size() >= ServersWanted() + request.add()) {
    return absl::FailedPreconditionError(absl::StrCat("of ", Count(ServersWanted(), "server"), " ", leaving.size(),
                                                      " would leave, and none would be left to hold the shards"));
  }
  servers_to_come_ += request.add();
  servers_added_ += request.add();
  if (request.add() > 0) {
    events_.Add(absl::StrCat(Count(request.add(), "server"), " may join; the job will have ", ServersWanted()));
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

std::optional<ServerId> Controller::ServerNamed(const std::string& name) const {
  for (const auto& [id, server] : membership_.servers()) {
    if (server.name == name) return id;
  }
  return std::nullopt;
}

std::string Controller::ServerNames() const {
  return absl::StrJoin(membership_.servers(), ", ",
                       [](std::string* out, const auto& server) { out->append(server.second.name); });
}

// --- Servers without shards -------------------------------------------------------------------------------------

bool Controller::IsJoining(ServerRef server) const {
  const auto found = joining_.find(server.server);
  return found != joining_.end() && found->second.incarnation == server.incarnation;
}

absl::StatusOr<wire::RegisterServerReply> Controller::RegisterJoining(const wire::RegisterServerRequest& request) {
  if (places_.empty() || state_ != wire::JOB_TRAINING || ServerNamed(request.name())) {
    return absl::NotFoundError("a server of the job");
  }
  for (const auto& [id, joining] : joining_) {
    if (joining.name != request.name()) continue;
    DropJoining(id, "was started again");
    break;
  }
  if (servers_to_come_ == 0) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.name(), " is one too many: the job has ",
                                                      Count(membership_.places() + joining_.size(), "server"),
                                                      "; `slackline servers add` makes room for more"));
  }
  --servers_to_come_;
  drained_.erase(request.name());
  const ServerId id = NextServerId();
  Joining& joining = joining_[id];
  joining = {.name = request.name(),
             .address = request.address(),
             .incarnation = membership_.NewIncarnation(),
             .local = std::nullopt,
             .heard = time_.Now()};
  if (request.has_local()) joining.local = request.local();
  events_.Add(absl::StrCat(Called("server", joining.name), " is there at ", joining.address, ", to get shards"));
  servers_.Connect({id, joining.incarnation}, joining.name, joining.address, *this);
  wire::RegisterServerReply reply;
  reply.set_job(config_.id.value());
  reply.set_server(id.value());
  reply.set_incarnation(joining.incarnation.value());
  return reply;
}

ServerId Controller::NextServerId() const {
  uint32_t last = 0;
  if (!membership_.servers().empty()) last = membership_.servers().rbegin()->first.value();
  if (!joining_.empty()) last = std::max(last, joining_.rbegin()->first.value());
  // Its link and its heartbeats may still be about.
  for (const auto& [name, drained] : drained_) last = std::max(last, drained.server.value());
  return ServerId(last + 1);
}

absl::StatusOr<wire::HeartbeatReply> Controller::JoiningHeartbeat(const wire::HeartbeatRequest& request,
                                                                  absl::Time now) {
  const ServerId id(request.member());
  joining_.at(id).heard = now;
  wire::HeartbeatReply reply;
  reply.set_generation(generation_.value());
  reply.set_leave(now - stopping_ >= config_.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(reason_);
  if (request.leaving()) DropJoining(id, absl::StrCat("left: ", request.leaving_reason()));
  return reply;
}

void Controller::DropJoining(ServerId id, const std::string& why) {
  const auto found = joining_.find(id);
  if (found == joining_.end()) return;
  const Joining joining = found->second;
  if (move_ && move_->to == id) GiveUpMove(absl::StrCat(joining.name, " is dead"));
  joining_.erase(found);
  ++servers_to_come_;
  servers_.Disconnect({id, joining.incarnation});
  if (!Ended()) {
    events_.Add(absl::StrCat(Called("server", joining.name), ", which has no shards yet, is dead: ", why),
                exit_audience_);
  }
}

// --- A move -----------------------------------------------------------------------------------------------------

std::string Controller::ServerName(ServerId id) const {
  if (const auto member = membership_.servers().find(id); member != membership_.servers().end()) {
    return member->second.name;
  }
  const auto joining = joining_.find(id);
  return joining != joining_.end() ? joining->second.name : absl::StrCat("server ", id.value());
}

std::string Controller::Describe(const Move& move) const {
  return absl::StrCat(Count(move.shards.size(), "shard"), " from ", ServerName(move.from), " to ", ServerName(move.to));
}

void Controller::WatchMoves(absl::Time now) {
  std::vector<std::pair<ServerId, std::string>> dead;
  for (const auto& [id, joining] : joining_) {
    const absl::Duration silent = now - joining.heard;
    if (silent > config_.timeouts.worker_dead()) dead.emplace_back(id, absl::StrCat("silent for ", Readable(silent)));
  }
  for (const auto& [id, why] : dead) DropJoining(id, why);
  for (auto& [name, drained] : drained_) {
    // One that has died over it is not told to stop for ever.
    if (now - drained.since <= config_.timeouts.worker_dead()) continue;
    servers_.Disconnect({drained.server, drained.incarnation});
    drained.since = absl::InfiniteFuture();
  }
  if (state_ != wire::JOB_TRAINING) return;
  FinishDrains();
  if (!move_) return PlanMove(now);
  if (move_->committed) {
    if (!move_->told && !config_.keeps_state) TellMove();
    return;
  }
  if (move_->in_step > 0) return CommitMove(now);
  const absl::Duration allowed = absl::Seconds(config_.job.durability().server_return_s());
  if (now - move_->begun > allowed) {
    GiveUpMove(absl::StrCat(ServerName(move_->to), " has not caught up within ", absl::FormatDuration(allowed),
                            " (durability.server_return_s)"));
  }
}

void Controller::PlanMove(absl::Time now) {
  rebalances_ = rebalances_ || !joining_.empty();
  // With backups nothing moves, however they were placed.
  rebalances_ = rebalances_ && !Replicated();
  if ((!rebalances_ && draining_.empty()) || now < move_again_) return;
  std::set<ServerId> servers, leaving = draining_;
  for (const auto& [id, server] : membership_.servers()) {
    // Shards of a server that is not there cannot move, nor can any go there.
    if (server.state != ServerState::kLive || !installed_.contains(id)) return;
    servers.insert(id);
  }
  for (const auto& [id, joining] : joining_) servers.insert(id);
  const std::optional<ShardMove> next = NextMove(places_, servers, leaving, Shares(), layout_.frozen_from);
  if (!next) {
    if (joining_.empty()) rebalances_ = false;
    return;
  }
  move_ = Move();
  Move& move = *move_;
  move.number = ++last_move_;
  move.from = next->from;
  move.to = next->to;
  move.shards = next->shards;
  move.from_incarnation = membership_.servers().at(next->from).incarnation;
  const auto joining = joining_.find(next->to);
  move.to_incarnation =
      joining != joining_.end() ? joining->second.incarnation : membership_.servers().at(next->to).incarnation;
  move.begun = now;
  events_.Add(absl::StrCat(Describe(move), ": copied while training goes on"), Audience::kRecord);
  SendTake();
}

void Controller::SendTake() {
  wire::TakeShardsRequest request;
  request.set_job(config_.id.value());
  request.set_server(move_->to.value());
  request.set_server_incarnation(move_->to_incarnation.value());
  request.set_move(move_->number);
  request.set_trained_elements(layout_.trained_elements);
  request.set_samples_per_epoch(layout_.train_samples);
  const Membership::Server& from = membership_.servers().at(move_->from);
  wire::ReplicationSource& source = *request.mutable_from();
  source.set_name(from.name);
  source.set_address(from.address);
  source.set_incarnation(from.incarnation.value());
  source.set_server(move_->from.value());
  if (const auto local = local_addresses_.find(move_->from); local != local_addresses_.end()) {
    *source.mutable_local() = local->second;
  }
  for (const ShardPlace& place : places_) {
    if (std::find(move_->shards.begin(), move_->shards.end(), place.shard) == move_->shards.end()) continue;
    *request.add_shards() = ToWire(place);
  }
  request.set_frozen_from(layout_.frozen_from);
  AddGroups(layout_, request);
  servers_.TakeShards({move_->to, move_->to_incarnation}, request);
}

uint64_t Controller::HearMove(ServerId id, const wire::BackupProgress& progress) {
  if (progress.attachment() == 0 || progress.move() == 0) return 0;
  const bool from_here = move_ && move_->from == id;
  const bool ours = from_here && progress.move() == move_->number &&
                    Incarnation(progress.backup_incarnation()) == move_->to_incarnation;
  // What was decided stays so: it answers nobody for these shards until it hears that they are not its any more.
  if (from_here && move_->committed) return 0;
  if (ours && !progress.lost()) {
    if (progress.in_step() && progress.attachment() > move_->released) move_->in_step = progress.attachment();
    return 0;
  }
  // A scheduler that was started again does not know what the one before has decided before the server has taken that.
  if (!installed_.contains(id)) return 0;
  if (ours) {
    move_->released = std::max(move_->released, progress.attachment());
    move_->in_step = 0;
  }
  return progress.attachment();
}

void Controller::CommitMove(absl::Time now) {
  // Its parts would be those of other servers.
  if (checkpoints_.in_progress()) return;
  const auto from = membership_.servers().find(move_->from);
  if (from->second.state != ServerState::kLive) return;
  move_->before = generation_;
  generation_ = generation_.Next();
  for (ShardPlace& place : places_) {
    const bool moves = std::find(move_->shards.begin(), move_->shards.end(), place.shard) != move_->shards.end();
    if (moves) place.server = move_->to;
  }
  placed_ = true;
  for (const ServerId id : {move_->from, move_->to}) {
    server_generations_[id] = generation_;
    installed_.erase(id);
  }
  if (const auto found = joining_.find(move_->to); found != joining_.end()) {
    const Joining joining = found->second;
    joining_.erase(found);
    if (joining.local) local_addresses_[move_->to] = *joining.local;
    // Its shards have weights.
    server_progress_[move_->to].set_seeded(true);
    if (durable_.contains(move_->from)) durable_.insert(move_->to);
    membership_.AddPlace();
    membership_.ReplaceServer(move_->to, joining.name, joining.address, joining.incarnation, now, move_->to_actions);
  } else {
    const Membership::Server to = membership_.servers().at(move_->to);
    membership_.ReplaceServer(move_->to, to.name, to.address, to.incarnation, now, move_->to_actions);
  }
  const Membership::Server before = from->second;
  membership_.ReplaceServer(move_->from, before.name, before.address, before.incarnation, now, move_->from_actions);
  move_->committed = true;
  kill_point::Passed("move-decided");
}

void Controller::MoveKept(const state::Scheduler& saved) {
  if (!move_ || !move_->committed || move_->told || saved.placement().move().number() != move_->number) return;
  kill_point::Passed("move-saved");
  TellMove();
}

void Controller::TellMove() {
  move_->told = true;
  if (membership_.servers().at(move_->from).state != ServerState::kLive) return TellTaker();
  SendInstall(move_->from);  // before the members
  Apply(std::exchange(move_->from_actions, {}));
}

void Controller::TellTaker() {
  move_->given_up = true;
  const Membership::Server& to = membership_.servers().at(move_->to);
  // One that is dead gets its shards when it comes back.
  if (to.state != ServerState::kLive) return;
  SendInstall(move_->to);  // before the members, which another life of it has got already
  if (to.incarnation == move_->to_incarnation) Apply(std::exchange(move_->to_actions, {}));
}

void Controller::InstalledOfMove(ServerId server) {
  if (!move_ || !move_->told) return;
  if (server == move_->from && !move_->given_up) {
    kill_point::Passed("move-given-up");
    TellTaker();
  } else if (server == move_->to && move_->given_up) {
    const Move move = *std::exchange(move_, std::nullopt);
    ++moves_made_;
    events_.Add(absl::StrCat(Describe(move), ": moved, ", Readable(time_.Now() - move.begun), " after it was begun"));
    FinishDrains();
  }
}

void Controller::ServerLostToMove(ServerId server) {
  if (!move_) return;
  if (!move_->committed) {
    if (server == move_->from || server == move_->to) GiveUpMove(absl::StrCat(ServerName(server), " is dead"));
  } else if (server == move_->from && move_->told && !move_->given_up) {
    TellTaker();
  }
}

void Controller::TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  const bool ours = move_ && !move_->committed && move_->number == request.move() && move_->to == server.server;
  if (ours) GiveUpMove(absl::StrCat(ServerName(server.server), " refuses them: ", std::string(status.message())));
}

void Controller::GiveUpMove(const std::string& why) {
  const Move move = *std::exchange(move_, std::nullopt);
  const auto member = membership_.servers().find(move.to);
  const bool there = member != membership_.servers().end() && member->second.state == ServerState::kLive &&
                     member->second.incarnation == move.to_incarnation;
  // What was prepared there is of no worth any more.
  if (there || IsJoining({move.to, move.to_incarnation})) SendNothingToTake({move.to, move.to_incarnation});
  move_again_ = time_.Now() + config_.timeouts.worker_dead();
  if (!Ended()) {
    events_.Add(absl::StrCat(Describe(move), ": they stay where they are for now: ", why, "; tried again in ",
                             Readable(config_.timeouts.worker_dead())));
  }
}

void Controller::SendNothingToTake(ServerRef server) {
  wire::TakeShardsRequest nothing;
  nothing.set_job(config_.id.value());
  nothing.set_server(server.server.value());
  nothing.set_server_incarnation(server.incarnation.value());
  nothing.set_move(++last_move_);
  servers_.TakeShards(server, nothing);
}

bool Controller::HoldsShards(ServerId server) const {
  return std::any_of(places_.begin(), places_.end(), [&](const ShardPlace& place) { return place.server == server; });
}

bool Controller::MapUnsaved() const { return move_ && move_->committed && !move_->told; }

uint64_t Controller::PublicGeneration() const {
  if (places_.empty()) return 0;
  return (MapUnsaved() ? move_->before : generation_).value();
}

void Controller::NoteDrained(const std::string& name, Deposed drained) {
  // As in Depose().
  constexpr size_t kDrainedMax = 64;
  if (drained_.size() >= kDrainedMax) drained_.erase(drained_.begin());
  drained_[name] = std::move(drained);
}

void Controller::FinishDrains() {
  if (move_) return;
  for (const ServerId id : std::set<ServerId>(draining_)) {
    if (HoldsShards(id)) continue;
    const Membership::Server server = membership_.servers().at(id);
    draining_.erase(id);
    MembershipActions actions;
    membership_.RemoveServer(id, actions);
    NoteDrained(server.name, {server.incarnation, id, "has given up its shards", time_.Now()});
    if (server.state == ServerState::kLive) {
      wire::StopRequest request;
      request.set_job(config_.id.value());
      request.set_reason("it was drained");
      servers_.Stop({id, server.incarnation}, request);
    }
    for (auto* set : {&installed_, &durable_, &stopped_}) set->erase(id);
    server_generations_.erase(id);
    server_progress_.erase(id);
    local_addresses_.erase(id);
    lost_since_.erase(id);
    events_.Add(absl::StrCat(Called("server", server.name), " has no shards any more and leaves; the job has ",
                             Count(membership_.servers().size(), "server")));
    Apply(actions);
  }
}

// --- What outlives the scheduler --------------------------------------------------------------------------------

void Controller::SaveMoves(state::Scheduler& state) const {
  const bool changed = placed_ || servers_added_ > 0 || !draining_.empty() || last_move_ > 0;
  if (places_.empty() || !changed) return;
  state::Placement& placement = *state.mutable_placement();
  placement.set_to_come(servers_to_come_);
  for (const ShardPlace& place : places_) placement.add_servers(place.server.value());
  placement.set_added(servers_added_);
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
  placement.set_last_move(last_move_);
  if (!move_ || !move_->committed) return;
  state::Move& move = *placement.mutable_move();
  move.set_number(move_->number);
  move.set_from(move_->from.value());
  move.set_to(move_->to.value());
}

void Controller::RestoreMoves(const state::Scheduler& state, absl::Time now) {
  // Moves that were begun since the save.
  constexpr uint64_t kForgottenMoves = 1'000;
  const state::Placement& placement = state.placement();
  last_move_ = placement.last_move() + kForgottenMoves;
  if (!state.has_placement() || places_.empty()) return;
  for (size_t i = 0; i < places_.size(); ++i) places_[i].server = ServerId(placement.servers(static_cast<int>(i)));
  placed_ = true;
  servers_added_ = placement.added();
  servers_to_come_ = placement.to_come();
  rebalances_ = true;
  for (const state::Server& from : placement.drained()) {
    NoteDrained(from.name(), {Incarnation(from.incarnation()), ServerId(from.server()), from.reason(), now});
  }
  for (const uint32_t server : placement.draining()) draining_.insert(ServerId(server));
  for (const state::Server& from : placement.joining()) {
    const ServerId id(from.server());
    Joining& joining = joining_[id];
    joining = {.name = from.name(),
               .address = from.address(),
               .incarnation = Incarnation(from.incarnation()),
               .local = std::nullopt,
               .heard = now};
    if (from.has_local()) joining.local = from.local();
    servers_.Connect({id, joining.incarnation}, joining.name, joining.address, *this);
    SendNothingToTake({id, joining.incarnation});
  }
  if (!placement.has_move()) return;
  move_ = Move();
  Move& move = *move_;
  move.number = placement.move().number();
  move.from = ServerId(placement.move().from());
  move.to = ServerId(placement.move().to());
  for (const ShardPlace& place : places_) {
    if (place.server == move.to) move.shards.push_back(place.shard);
  }
  move.from_incarnation = membership_.servers().at(move.from).incarnation;
  move.to_incarnation = membership_.servers().at(move.to).incarnation;
  move.begun = now;
  move.committed = move.told = true;
  move.given_up = membership_.servers().at(move.from).state != ServerState::kLive;
}

bool Controller::AwaitsGivingUp(ServerId server) const { return move_ && move_->to == server && !move_->given_up; }

void Controller::FillMoves(absl::Time now, wire::GetStatusReply& reply) const {
  reply.set_servers_added(servers_added_);
  reply.set_servers_wanted(ServersWanted());
  reply.set_servers_to_come(servers_to_come_);
  reply.set_servers_change(move_ || rebalances_ || servers_to_come_ > 0 || !draining_.empty() || !joining_.empty());
  if (move_) {
    const absl::string_view how = move_->committed     ? "changing hands"
                                  : move_->in_step > 0 ? "all is there"
                                                       : "being copied";
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

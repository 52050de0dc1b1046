// Servers and their backups: who may take over, and who has.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/kill_point.h"
#include "scheduler/controller.h"
#include "scheduler/pairing.h"

namespace slackline::scheduler {
bool Controller::IsBackup(ServerRef server) const {
  const auto found = backups_.find(server.server);
  return found != backups_.end() && found->second.incarnation == server.incarnation;
}

// --- Joining ----------------------------------------------------------------------------------------------------

std::optional<ServerId> Controller::ServerWithoutBackup(const wire::LocalAddress& backup) const {
  std::map<ServerId, wire::LocalAddress> open;
  std::vector<wire::LocalAddress> seen = {backup};
  for (const auto& [id, server] : membership_.servers()) {
    const auto known = local_addresses_.find(id);
    const wire::LocalAddress address = known == local_addresses_.end() ? wire::LocalAddress() : known->second;
    seen.push_back(address);
    if (server.state == ServerState::kLive && !backups_.contains(id)) open[id] = address;
  }
  for (const auto& [id, other] : backups_) seen.push_back(other.local.value_or(wire::LocalAddress()));
  return ChooseServer(backup, open, seen);
}

absl::StatusOr<wire::RegisterServerReply> Controller::RegisterBackup(const wire::RegisterServerRequest& request) {
  // Places of servers are filled first.
  const bool known = std::any_of(membership_.servers().begin(), membership_.servers().end(),
                                 [&](const auto& server) { return server.second.name == request.name(); });
  if (!Replicated() || known || membership_.servers().size() < config_.job.cluster().servers()) {
    return absl::NotFoundError("no backup");
  }
  for (const auto& [id, backup] : backups_) {
    if (backup.name != request.name()) continue;
    DropBackup(id, "was started again");
    deposed_.erase(request.name());
    break;
  }
  const std::optional<ServerId> server = ServerWithoutBackup(request.local());
  if (!server) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.name(), " is one too many: the job has ",
                                                      config_.job.cluster().servers(),
                                                      " servers, and each of them has a backup"));
  }
  Backup& backup = backups_[*server];
  backup = {.name = request.name(),
            .address = request.address(),
            .incarnation = membership_.NewIncarnation(),
            .local = std::nullopt,
            .heard = time_.Now()};
  if (request.has_local()) backup.local = request.local();
  const auto local = local_addresses_.find(*server);
  const bool near = backup.local && local != local_addresses_.end() && local->second.host() == backup.local->host();
  events_.Add(absl::StrCat(Called("server", backup.name), " is there at ", backup.address, ", as the backup of ",
                           membership_.servers().at(*server).name, near ? ", on the same machine" : ""));
  servers_.Connect({*server, backup.incarnation}, backup.name, backup.address, *this);
  SendBackupInstall(*server);
  BeginIfReady();

  deposed_.erase(request.name());

  wire::RegisterServerReply reply;
  reply.set_job(config_.id.value());
  reply.set_server(server->value());
  reply.set_incarnation(backup.incarnation.value());
  return reply;
}

void Controller::SendBackupInstall(ServerId id) {
  const auto backup = backups_.find(id);
  if (backup == backups_.end() || places_.empty()) return;
  const Membership::Server& server = membership_.servers().at(id);
  wire::InstallShardsRequest request;
  request.set_job(config_.id.value());
  request.set_generation(GenerationOf(id).value());
  request.set_server(id.value());
  request.set_server_incarnation(backup->second.incarnation.value());
  request.set_trained_elements(layout_.trained_elements);
  request.set_samples_per_epoch(layout_.train_samples);
  request.set_replicated(true);
  wire::ReplicationSource& source = *request.mutable_backup_of();
  source.set_name(server.name);
  source.set_address(server.address);
  source.set_incarnation(server.incarnation.value());
  if (const auto local = local_addresses_.find(id); local != local_addresses_.end()) {
    *source.mutable_local() = local->second;
  }
  for (const ShardPlace& place : places_) {
    if (place.server == id) *request.add_shards() = ToWire(place);
  }
  request.set_frozen_from(layout_.frozen_from);
  AddGroups(layout_, request);
  servers_.Install({id, backup->second.incarnation}, request);
}

// --- In step, or not --------------------------------------------------------------------------------------------

absl::StatusOr<wire::HeartbeatReply> Controller::BackupHeartbeat(const wire::HeartbeatRequest& request,
                                                                 absl::Time now) {
  const ServerId id(request.member());
  backups_.at(id).heard = now;
  wire::HeartbeatReply reply;
  reply.set_generation(PublicGeneration());
  reply.set_leave(now - stopping_ >= config_.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(reason_);
  reply.set_job_ended(Ended());
  if (request.leaving()) DropBackup(id, absl::StrCat("left: ", request.leaving_reason()));
  return reply;
}

uint64_t Controller::HearBackup(ServerId id, const wire::BackupProgress& progress) {
  if (!Replicated() || progress.attachment() == 0) return 0;
  const Membership::Server& server = membership_.servers().at(id);
  Pairing& pairing = pairings_[id];
  if (pairing.server != server.incarnation) pairing = {.server = server.incarnation};
  const auto backup = backups_.find(id);
  const bool ours =
      backup != backups_.end() && backup->second.incarnation == Incarnation(progress.backup_incarnation());
  if (!ours || progress.lost()) {
    Release(id, progress.attachment(), ours ? progress.reason() : "it is not there any more");
  } else if (progress.in_step() && progress.attachment() > std::max(pairing.released, pairing.in_step) &&
             time_.Now() - backup->second.heard <= config_.timeouts.server_dead()) {
    // One that only its server hears would be released at once.
    pairing.in_step = progress.attachment();
    backed_once_.insert(id);
    membership_.SetBacked(id, server.incarnation, true);
    events_.Add(absl::StrCat(backup->second.name, " is in step with ", server.name, " and can take over"));
  }
  return pairing.released_saved;
}

void Controller::Release(ServerId id, uint64_t attachment, const std::string& why) {
  const Membership::Server& server = membership_.servers().at(id);
  Pairing& pairing = pairings_[id];
  if (attachment <= pairing.released) return;
  pairing.released = attachment;
  if (pairing.in_step == 0 || pairing.in_step > attachment) return;
  pairing.in_step = 0;
  membership_.SetBacked(id, server.incarnation, false);
  if (!Ended()) events_.Add(absl::StrCat(server.name, " goes on without its backup for now: ", why));
}

void Controller::DropBackup(ServerId id, const std::string& why) {
  const auto found = backups_.find(id);
  if (found == backups_.end()) return;
  const Backup backup = found->second;
  backups_.erase(found);
  servers_.Disconnect({id, backup.incarnation});
  if (!Ended()) events_.Add(absl::StrCat("backup ", backup.name, " is dead: ", why), exit_audience_);
  Depose(backup.name, {backup.incarnation, id, why});
  if (const auto pairing = pairings_.find(id); pairing != pairings_.end()) {
    Release(id, pairing->second.in_step, absl::StrCat(backup.name, " is dead"));
  }
}

void Controller::Depose(const std::string& name, Deposed deposed) {
  // Names that say the process id never come back.
  constexpr size_t kDeposedMax = 64;
  if (deposed_.size() >= kDeposedMax) deposed_.erase(deposed_.begin());
  deposed_[name] = std::move(deposed);
}

void Controller::FailIfNeverBacked(absl::Time now) {
  if (!Replicated() || state_ != wire::JOB_TRAINING) return;
  const absl::Duration allowed = absl::Seconds(config_.job.durability().server_return_s());
  if (now - first_backup_since_ <= allowed) return;
  for (const auto& [id, server] : membership_.servers()) {
    if (backed_once_.contains(id)) continue;
    return End(wire::JOB_FAILED, absl::StrCat(Called("server", server.name), " got no backup in step within ",
                                              absl::FormatDuration(allowed),
                                              " (durability.server_return_s), and answers nobody before it has one",
                                              backups_.contains(id) ? "" : ": none is there"));
  }
}

void Controller::WatchBackups(absl::Time now) {
  if (first_backup_since_ == absl::InfiniteFuture() && state_ == wire::JOB_TRAINING) first_backup_since_ = now;
  FailIfNeverBacked(now);

  std::vector<std::pair<ServerId, std::string>> dead;
  for (const auto& [id, backup] : backups_) {
    const absl::Duration silent = now - backup.heard;
    if (const auto pairing = pairings_.find(id); pairing != pairings_.end() && pairing->second.in_step > 0) {
      // Nobody is believed dead early in favour of somebody who has fallen silent at about the same time.
      membership_.SetBacked(id, pairing->second.server, silent <= config_.timeouts.lease());
    }
    if (silent <= config_.timeouts.server_dead()) continue;
    const std::string why =
        absl::StrCat("no heartbeat for ", absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1))));
    if (const auto pairing = pairings_.find(id); pairing != pairings_.end()) {
      Release(id, pairing->second.in_step, absl::StrCat(backup.name, " has sent ", why));
    }
    if (silent > config_.timeouts.worker_dead()) dead.emplace_back(id, why);
  }
  for (const auto& [id, why] : dead) DropBackup(id, why);
}

bool Controller::TakeOver(ServerId id, absl::Time now) {
  const auto found = backups_.find(id);
  const auto pairing = pairings_.find(id);
  const Membership::Server old = membership_.servers().at(id);
  const bool in_step = found != backups_.end() && pairing != pairings_.end() &&
                       pairing->second.server == old.incarnation && pairing->second.in_step > 0;
  if (!in_step || state_ != wire::JOB_TRAINING) return false;
  const Backup backup = found->second;
  backups_.erase(found);
  pairings_[id] = {.server = backup.incarnation};
  promoted_.insert(id);
  backed_once_.insert(id);
  lost_since_.try_emplace(id, now);
  installed_.erase(id);
  generation_ = generation_.Next();
  server_generations_[id] = generation_;
  local_addresses_.erase(id);
  if (backup.local) local_addresses_[id] = *backup.local;
  servers_.Disconnect({id, old.incarnation});
  Depose(old.name, {old.incarnation, id, old.reason});
  events_.Add(absl::StrCat(Called("server", old.name), " (", old.address, ") is dead: ", old.reason, "; ", backup.name,
                           " takes over"),
              exit_audience_);
  membership_.ReplaceServer(id, backup.name, backup.address, backup.incarnation, now, promotions_[id]);
  return true;
}

void Controller::Promote(const state::Scheduler& saved) {
  for (const state::Server& server : saved.members().servers()) {
    const ServerId id(server.server());
    const auto found = promotions_.find(id);
    if (found == promotions_.end()) continue;
    if (membership_.servers().at(id).incarnation != Incarnation(server.incarnation())) continue;
    kill_point::Passed("take-over");
    const MembershipActions actions = std::move(found->second);
    promotions_.erase(found);
    SendInstall(id);  // before the members
    Apply(actions);
  }
}

// --- What outlives the scheduler --------------------------------------------------------------------------------

void Controller::SaveBackups(state::Scheduler& state) const {
  for (const auto& [id, server] : membership_.servers()) {
    const auto backup = backups_.find(id);
    const auto pairing = pairings_.find(id);
    if (backup == backups_.end() && pairing == pairings_.end()) continue;
    state::Backup& out = *state.add_backups();
    out.set_server(id.value());
    if (backup != backups_.end()) {
      out.set_name(backup->second.name);
      out.set_address(backup->second.address);
      out.set_incarnation(backup->second.incarnation.value());
      if (backup->second.local) *out.mutable_local() = *backup->second.local;
    }
    if (pairing == pairings_.end()) continue;
    out.set_server_incarnation(pairing->second.server.value());
    out.set_released(pairing->second.released);
    out.set_in_step(pairing->second.in_step);
  }
  for (const ServerId server : promoted_) state.add_promoted(server.value());
}

void Controller::BackupsKept(const state::Scheduler& state) {
  for (const state::Backup& saved : state.backups()) {
    const auto pairing = pairings_.find(ServerId(saved.server()));
    if (pairing == pairings_.end() || pairing->second.server != Incarnation(saved.server_incarnation())) continue;
    pairing->second.released_saved = std::max(pairing->second.released_saved, saved.released());
  }
  Promote(state);
}

void Controller::RestoreBackups(const state::Scheduler& state, absl::Time now) {
  for (const state::Backup& saved : state.backups()) {
    const ServerId id(saved.server());
    if (saved.in_step() > 0 || saved.released() > 0) backed_once_.insert(id);
    if (saved.server_incarnation() != 0) {
      pairings_[id] = {.server = Incarnation(saved.server_incarnation()),
                       .released = saved.released(),
                       .released_saved = saved.released(),
                       .in_step = saved.in_step()};
      membership_.SetBacked(id, Incarnation(saved.server_incarnation()), saved.in_step() > 0);
    }
    if (saved.name().empty()) continue;
    Backup& backup = backups_[id];
    backup = {.name = saved.name(),
              .address = saved.address(),
              .incarnation = Incarnation(saved.incarnation()),
              .local = std::nullopt,
              .heard = now};
    if (saved.has_local()) backup.local = saved.local();
    servers_.Connect({id, backup.incarnation}, backup.name, backup.address, *this);
    SendBackupInstall(id);
  }
}

void Controller::FillBackups(absl::Time now, wire::GetStatusReply& reply) const {
  for (const auto& [id, backup] : backups_) {
    const auto pairing = pairings_.find(id);
    wire::MemberStatus& member = *reply.add_members();
    member.set_role(wire::MEMBER_ROLE_SERVER);
    member.set_member(id.value());
    member.set_incarnation(backup.incarnation.value());
    member.set_name(backup.name);
    member.set_state(pairing != pairings_.end() && pairing->second.in_step > 0 ? "in step" : "catching up");
    member.set_silent_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - backup.heard)));
    member.set_address(backup.address);
    member.set_backup(true);
  }
  for (const auto& [name, deposed] : deposed_) {
    wire::MemberStatus& member = *reply.add_members();
    member.set_role(wire::MEMBER_ROLE_SERVER);
    member.set_member(deposed.server.value());
    member.set_incarnation(deposed.incarnation.value());
    member.set_name(name);
    member.set_state("dead");
    member.set_reason(deposed.reason);
  }
}

}  // namespace slackline::scheduler

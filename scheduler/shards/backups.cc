#include "scheduler/shards/backups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/process/kill_point.h"
#include "scheduler/shards/pairing.h"

namespace slackline::scheduler {

bool Backups::InStep(ServerId server) const {
  const auto pairing = pairings_.find(server);
  return pairing != pairings_.end() && pairing->second.in_step > 0;
}

size_t Backups::CountInStep() const {
  return static_cast<size_t>(
      std::count_if(backups_.begin(), backups_.end(), [this](const auto& backup) { return InStep(backup.first); }));
}

// --- Joining ----------------------------------------------------------------------------------------------------

std::optional<ServerId> Backups::ServerWithout(const wire::LocalAddress& backup) const {
  std::map<ServerId, wire::LocalAddress> open;
  std::vector<wire::LocalAddress> seen = {backup};
  for (const auto& [id, server] : membership_.servers()) {
    const wire::LocalAddress* known = shards_.LocalOf(id);
    const wire::LocalAddress address = known == nullptr ? wire::LocalAddress() : *known;
    seen.push_back(address);
    if (server.state == ServerState::kLive && !backups_.contains(id)) open[id] = address;
  }
  for (const auto& [id, other] : backups_) seen.push_back(other.local.value_or(wire::LocalAddress()));
  return ChooseServer(backup, open, seen);
}

absl::StatusOr<ServerRef> Backups::Register(const wire::RegisterServerRequest& request, const JobFacts& facts) {
  const uint32_t places = setting_.job.cluster().servers();
  // Places of servers are filled first.
  const bool known = std::any_of(membership_.servers().begin(), membership_.servers().end(),
                                 [&](const auto& server) { return server.second.name == request.name(); });
  if (!HasBackups(setting_.job) || known || membership_.servers().size() < places) {
    return absl::NotFoundError("no backup");
  }
  for (const auto& [id, backup] : backups_) {
    if (backup.name != request.name()) continue;
    Drop(id, "was started again", facts);
    deposed_.erase(request.name());
    break;
  }
  const std::optional<ServerId> server = ServerWithout(request.local());
  if (!server) {
    return absl::FailedPreconditionError(absl::StrCat("server ", request.name(), " is one too many: the job has ",
                                                      places, " servers, and each of them has a backup"));
  }
  const SpareServer& backup = backups_[*server] = SpareOf(request, membership_.NewIncarnation(), facts.now);
  const wire::LocalAddress* local = shards_.LocalOf(*server);
  const bool near = backup.local && local != nullptr && local->host() == backup.local->host();
  events_.Add(absl::StrCat(Called("server", backup.name), " is there at ", backup.address, ", as the backup of ",
                           membership_.servers().at(*server).name, near ? ", on the same machine" : ""));
  const ServerRef ref = {*server, backup.incarnation};
  calls_.Connect(ref, backup.name, backup.address, observer_);
  Install(*server);
  deposed_.erase(request.name());
  return ref;
}

void Backups::Install(ServerId id) {
  const auto backup = backups_.find(id);
  if (backup == backups_.end() || !shards_.placed()) return;
  wire::InstallShardsRequest request = shards_.InstallRequest(id, backup->second.incarnation);
  request.set_replicated(true);
  *request.mutable_backup_of() = shards_.SourceOf(id, membership_.servers().at(id));
  calls_.Install({id, backup->second.incarnation}, request);
}

// --- In step, or not --------------------------------------------------------------------------------------------

uint64_t Backups::Hear(ServerId id, const wire::BackupProgress& progress, const JobFacts& facts) {
  if (!HasBackups(setting_.job) || progress.attachment() == 0) return 0;
  const Membership::Server& server = membership_.servers().at(id);
  Pairing& pairing = pairings_[id];
  if (pairing.server != server.incarnation) pairing = {.server = server.incarnation};
  const auto backup = backups_.find(id);
  const bool ours =
      backup != backups_.end() && backup->second.incarnation == Incarnation(progress.backup_incarnation());
  if (!ours || progress.lost()) {
    Release(id, progress.attachment(), ours ? progress.reason() : "it is not there any more", facts);
  } else if (progress.in_step() && progress.attachment() > std::max(pairing.released, pairing.in_step) &&
             facts.now - backup->second.heard <= setting_.timeouts.server_dead()) {
    // One that only its server hears would be released at once.
    pairing.in_step = progress.attachment();
    backed_once_.insert(id);
    membership_.SetBacked(id, server.incarnation, true);
    events_.Add(absl::StrCat(backup->second.name, " is in step with ", server.name, " and can take over"));
  }
  return pairing.released_saved;
}

void Backups::Release(ServerId id, uint64_t attachment, const std::string& why, const JobFacts& facts) {
  const Membership::Server& server = membership_.servers().at(id);
  Pairing& pairing = pairings_[id];
  if (attachment <= pairing.released) return;
  pairing.released = attachment;
  if (pairing.in_step == 0 || pairing.in_step > attachment) return;
  pairing.in_step = 0;
  membership_.SetBacked(id, server.incarnation, false);
  if (!facts.ended()) events_.Add(absl::StrCat(server.name, " goes on without its backup for now: ", why));
}

void Backups::Drop(ServerId id, const std::string& why, const JobFacts& facts) {
  const auto found = backups_.find(id);
  if (found == backups_.end()) return;
  const SpareServer backup = found->second;
  backups_.erase(found);
  calls_.Disconnect({id, backup.incarnation});
  if (!facts.ended()) events_.Add(absl::StrCat("backup ", backup.name, " is dead: ", why), facts.deaths);
  Depose(deposed_, backup.name, {backup.incarnation, id, why});
  if (const auto pairing = pairings_.find(id); pairing != pairings_.end()) {
    Release(id, pairing->second.in_step, absl::StrCat(backup.name, " is dead"), facts);
  }
}

std::optional<std::string> Backups::NeverBacked(const JobFacts& facts) const {
  if (!HasBackups(setting_.job) || !facts.training()) return std::nullopt;
  const absl::Duration allowed = absl::Seconds(setting_.job.durability().server_return_s());
  if (facts.now - since_ <= allowed) return std::nullopt;
  for (const auto& [id, server] : membership_.servers()) {
    if (backed_once_.contains(id)) continue;
    return absl::StrCat(Called("server", server.name), " got no backup in step within ", absl::FormatDuration(allowed),
                        " (durability.server_return_s), and answers nobody before it has one",
                        backups_.contains(id) ? "" : ": none is there");
  }
  return std::nullopt;
}

void Backups::Watch(const JobFacts& facts) {
  if (since_ == absl::InfiniteFuture() && facts.training()) since_ = facts.now;
  std::vector<std::pair<ServerId, std::string>> dead;
  for (const auto& [id, backup] : backups_) {
    const absl::Duration silent = facts.now - backup.heard;
    if (const auto pairing = pairings_.find(id); pairing != pairings_.end() && pairing->second.in_step > 0) {
      // Nobody is believed dead early in favour of somebody who has fallen silent at about the same time.
      membership_.SetBacked(id, pairing->second.server, silent <= setting_.timeouts.lease());
    }
    if (silent <= setting_.timeouts.server_dead()) continue;
    const std::string why =
        absl::StrCat("no heartbeat for ", absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1))));
    if (const auto pairing = pairings_.find(id); pairing != pairings_.end()) {
      Release(id, pairing->second.in_step, absl::StrCat(backup.name, " has sent ", why), facts);
    }
    if (silent > setting_.timeouts.worker_dead()) dead.emplace_back(id, why);
  }
  for (const auto& [id, why] : dead) Drop(id, why, facts);
}

bool Backups::TakeOver(ServerId id, const JobFacts& facts) {
  const auto found = backups_.find(id);
  const auto pairing = pairings_.find(id);
  const Membership::Server old = membership_.servers().at(id);
  const bool in_step = found != backups_.end() && pairing != pairings_.end() &&
                       pairing->second.server == old.incarnation && pairing->second.in_step > 0;
  if (!in_step || !facts.training()) return false;
  const SpareServer backup = found->second;
  backups_.erase(found);
  pairings_[id] = {.server = backup.incarnation};
  promoted_.insert(id);
  backed_once_.insert(id);
  shards_.SetNotInstalled(id);
  shards_.Renew(id);
  shards_.SetLocal(id, backup.local);
  calls_.Disconnect({id, old.incarnation});
  Depose(deposed_, old.name, {old.incarnation, id, old.reason});
  events_.Add(absl::StrCat(Called("server", old.name), " (", old.address, ") is dead: ", old.reason, "; ", backup.name,
                           " takes over"),
              facts.deaths);
  membership_.ReplaceServer(id, backup.name, backup.address, backup.incarnation, facts.now, promotions_[id]);
  return true;
}

// --- What outlives the scheduler --------------------------------------------------------------------------------

void Backups::Save(state::Scheduler& state) const {
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

std::vector<std::pair<ServerId, MembershipActions>> Backups::Kept(const state::Scheduler& state) {
  for (const state::Backup& saved : state.backups()) {
    const auto pairing = pairings_.find(ServerId(saved.server()));
    if (pairing == pairings_.end() || pairing->second.server != Incarnation(saved.server_incarnation())) continue;
    pairing->second.released_saved = std::max(pairing->second.released_saved, saved.released());
  }
  std::vector<std::pair<ServerId, MembershipActions>> kept;
  for (const state::Server& server : state.members().servers()) {
    const ServerId id(server.server());
    const auto found = promotions_.find(id);
    if (found == promotions_.end()) continue;
    if (membership_.servers().at(id).incarnation != Incarnation(server.incarnation())) continue;
    kill_point::Passed("take-over");
    kept.emplace_back(id, std::move(found->second));
    promotions_.erase(found);
  }
  return kept;
}

void Backups::Restore(const state::Scheduler& state, absl::Time now) {
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
    const SpareServer& backup = backups_[id] = SpareOf(saved, Incarnation(saved.incarnation()), now);
    calls_.Connect({id, backup.incarnation}, backup.name, backup.address, observer_);
    Install(id);
  }
}

void Backups::Fill(absl::Time now, wire::GetStatusReply& reply) const {
  for (const auto& [id, backup] : backups_) {
    wire::MemberStatus& member = *reply.add_members();
    member.set_role(wire::MEMBER_ROLE_SERVER);
    member.set_member(id.value());
    member.set_incarnation(backup.incarnation.value());
    member.set_name(backup.name);
    member.set_state(InStep(id) ? "in step" : "catching up");
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

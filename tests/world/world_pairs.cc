// Servers and their backups, watched from outside: when a job may fail, and how soon a backup must have taken over.
//
// A pair is whole when the scheduler has saved that the two are in step, they are, and nothing is wrong with either or
// between them and the scheduler. From then on each death, pause, loss of their stream, or trouble of their links is a
// blow. A single blow may lead to nothing but a failover.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "tests/world/world.h"

namespace slackline::world {

ServerProcess* World::Find(uint64_t incarnation) const {
  const auto found = std::find_if(servers_.begin(), servers_.end(), [&](const auto& server) {
    return server->incarnation() == Incarnation(incarnation) && incarnation != 0;
  });
  return found == servers_.end() ? nullptr : found->get();
}

const ServerProcess* World::ServerOf(const Host* host) const {
  const auto found =
      std::find_if(servers_.begin(), servers_.end(), [&](const auto& server) { return server.get() == host; });
  return found == servers_.end() ? nullptr : found->get();
}

bool World::IsWhole(const state::Backup& saved, const wire::GetStatusReply& status) const {
  const ServerProcess* const server = Find(saved.server_incarnation());
  const ServerProcess* const backup = Find(saved.incarnation());
  if (server == nullptr || backup == nullptr || !server->IsFollowedBy(*backup)) return false;
  const bool known = saved.in_step() > 0 && saved.in_step() == server->backup().attachment();
  if (!known || network_.Losing() || network_.IsSlow("scheduler")) return false;
  for (const ServerProcess* const one : {server, backup}) {
    if (events_.Stopped(one->life) || network_.IsSlow(one->name)) return false;
    if (network_.Separated(one->name, "scheduler")) return false;
    // One that was replaced while it was stopped may register when it goes on: the last one of a name is believed.
    const auto namesake = [&](const auto& other) { return other->name == one->name; };
    if (std::count_if(servers_.begin(), servers_.end(), namesake) > 1) return false;
    // What the scheduler has not saved yet.
    const bool heard = std::any_of(status.members().begin(), status.members().end(), [&](const auto& member) {
      return member.incarnation() == one->incarnation().value() && member.role() == wire::MEMBER_ROLE_SERVER &&
             member.state() == (one == server ? "live" : "in step") &&
             absl::Milliseconds(member.silent_ms()) <= scene_.timeouts.lease();
    });
    if (!heard) return false;
  }
  return !network_.Separated(server->name, backup->name);
}

void World::WatchPairs() {
  if (!replicated_ || scene_.done || scheduler_ == nullptr || !scene_.saved) return;
  if (scene_.saved->job_state() != wire::JOB_TRAINING) return;
  const wire::GetStatusReply status = scheduler_->Status();
  for (const state::Backup& saved : scene_.saved->backups()) {
    if (IsWhole(saved, status)) pairs_[ServerId(saved.server())] = {true, 0};
  }
}

// --- Blows ------------------------------------------------------------------------------------------------------

void World::Blow(ServerId server) { ++pairs_[server].blows; }

void World::BlowAll() {
  for (auto& [id, pair] : pairs_) ++pair.blows;
}

void World::BlowBetween(const Host* a, const Host* b) {
  if (a == scheduler_.get()) std::swap(a, b);
  const ServerProcess* const one = ServerOf(a);
  const ServerProcess* const other = ServerOf(b);
  if (one == nullptr) return;
  const bool pair = other != nullptr && other->server() == one->server();
  if (pair || b == scheduler_.get()) Blow(one->server());
}

bool World::MayFailTwice(const std::string& reason) {
  const wire::GetStatusReply status = scheduler_->Status();
  const auto dead = [&](ServerId id) {
    return std::any_of(status.members().begin(), status.members().end(), [&](const wire::MemberStatus& member) {
      return member.role() == wire::MEMBER_ROLE_SERVER && ServerId(member.member()) == id && member.state() == "dead";
    });
  };
  for (uint32_t i = 1; i <= job_.cluster().servers(); ++i) {
    const Pair& pair = pairs_[ServerId(i)];
    if (!dead(ServerId(i)) && !absl::StrContains(reason, "refused")) continue;
    if (early_ && !pair.ever) return ++outcome_.counts.failed_early > 0;
    const bool named = absl::StrContains(reason, "no backup has all that it has answered") ||
                       absl::StrContains(reason, "cannot take over");
    if (named && pair.blows >= 2) return ++outcome_.counts.failed_twice > 0;
  }
  return false;
}

// --- Failovers --------------------------------------------------------------------------------------------------

void World::ExpectFailover(const ServerProcess& server) {
  if (!replicated_ || scheduler_ == nullptr || events_.Stopped(scheduler_->life) || !server.serves()) return;
  const auto pair = pairs_.find(server.server());
  const bool now = std::any_of(scene_.saved->backups().begin(), scene_.saved->backups().end(), [&](const auto& saved) {
    return saved.server_incarnation() == server.incarnation().value() && IsWhole(saved, scheduler_->Status());
  });
  if (pair == pairs_.end() || pair->second.blows > 0 || !now) return;
  failover_ = {server.server(), server.incarnation(), events_.Now(), scene_.saves_missed};
}

void World::CheckFailover() {
  if (!failover_) return;
  if (scheduler_ == nullptr || scheduler_->controller().state() != wire::JOB_TRAINING) return failover_.reset();
  const bool done = std::any_of(servers_.begin(), servers_.end(), [&](const auto& server) {
    return server->server() == failover_->server && server->serves() && server->incarnation() != failover_->dead;
  });
  const absl::Duration passed = events_.Now() - failover_->since;
  const absl::Duration unsaved =
      static_cast<double>(scene_.saves_missed - failover_->saves_missed) * scene_.timeouts.heartbeat / 2;
  if (done) {
    ++outcome_.counts.failovers_timed;
    return failover_.reset();
  }
  if (passed <= kFailover * scene_.timeouts.heartbeat + unsaved) return;
  Violate(absl::StrCat("server ", failover_->server.value(), " is dead for ", absl::FormatDuration(passed),
                       ", nothing else is wrong, and its backup has not taken over"));
}

// --- The end ----------------------------------------------------------------------------------------------------

void World::Part(Host& host) {
  const ServerProcess* const ends = ServerOf(&host);
  if (!replicated_ || ends == nullptr) return;
  for (const auto& server : servers_) {
    for (const auto& backup : servers_) {
      if ((server.get() != ends && backup.get() != ends) || server->server() != backup->server()) continue;
      if (compared_.contains(server->life) || server == backup) continue;
      const std::optional<std::string> different = server->CompareWith(*backup);
      if (!different) continue;
      compared_.insert(server->life);
      if (!different->empty()) Violate(absl::StrCat(server->name, " ", *different));
    }
  }
}

}  // namespace slackline::world

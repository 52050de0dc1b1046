// Servers and their backups (durability.mode replicated): which process backs up which server, whether it has all that
// the server has answered, and who takes over.
//
// A backup takes over in two steps: TakeOver() gives it the dead server's place, and Kept(), once that is saved, hands
// out what it is to be told. A restarted scheduler could give the place to the old server again otherwise.
//
// Thread-safety: none.
// Ownership:     borrows all that the constructor takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "scheduler.pb.h"
#include "scheduler/base/event_log.h"
#include "scheduler/base/server_calls.h"
#include "scheduler/members/job_facts.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/spare_server.h"
#include "scheduler/shards/shard_directory.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

class Backups {
 public:
  Backups(FixedJobFacts setting, Membership& membership, ShardDirectory& shards, ServerCalls& calls,
          ServerObserver& observer, EventLog& events)
      : setting_(std::move(setting)),
        membership_(membership),
        shards_(shards),
        calls_(calls),
        observer_(observer),
        events_(events) {}

  // --- Who is there ---
  // Backups by the server that they follow.
  SpareServers& all() { return backups_; }
  const SpareServers& all() const { return backups_; }
  // True if the server's backup can take over.
  bool InStep(ServerId server) const;
  size_t CountInStep() const;
  // Processes that have lost their place.
  DeposedServers& deposed() { return deposed_; }
  const DeposedServers& deposed() const { return deposed_; }
  // True if the server's shards are those of its backup.
  bool Promoted(ServerId server) const { return promoted_.contains(server); }
  // True while a promotion is not saved.
  bool Promoting(ServerId server) const { return promotions_.contains(server); }

  // Registers a process that is to be a server's backup.
  //   kNotFound            it is something else
  //   kFailedPrecondition  each server has a backup
  absl::StatusOr<ServerRef> Register(const wire::RegisterServerRequest& request, const JobFacts& facts);
  // Tells the server's backup, if there is one, whom it follows.
  void Install(ServerId server);
  // Removes the server's backup.
  void Drop(ServerId server, const std::string& why, const JobFacts& facts);

  // --- Who may take over ---
  // Notes what the server reports of its backup. Returns the attachment that it need not wait for any more; 0 for none.
  uint64_t Hear(ServerId server, const wire::BackupProgress& progress, const JobFacts& facts);
  // Finds backups that are silent.
  void Watch(const JobFacts& facts);
  // Returns why the job must fail: a server waits too long for its first backup in step, and serves nobody until then.
  std::optional<std::string> NeverBacked(const JobFacts& facts) const;
  // Gives the place of the dead server to its backup. False if no backup has all that the server has answered.
  bool TakeOver(ServerId server, const JobFacts& facts);

  // --- What outlives the scheduler ---
  void Save(state::Scheduler& state) const;
  // Notes that `state` is saved. Returns the servers that have taken over in it and are to be told, with the actions
  // that follow.
  std::vector<std::pair<ServerId, MembershipActions>> Kept(const state::Scheduler& state);
  // Restores Promoted(); Restore() does the rest, once the servers are connected.
  void RestorePromoted(const state::Scheduler& state) {
    for (const uint32_t server : state.promoted()) promoted_.insert(ServerId(server));
  }
  void Restore(const state::Scheduler& state, absl::Time now);

  void Fill(absl::Time now, wire::GetStatusReply& reply) const;

 private:
  // A server, in one life, and its backups. Attachments up to `released` will not take over; that is saved for those up
  // to `released_saved`. The backup of attachment `in_step` (0: none) has all that the server has answered.
  struct Pairing {
    Incarnation server;
    uint64_t released = 0;
    uint64_t released_saved = 0;
    uint64_t in_step = 0;
  };

  // Returns the server that `backup` can follow, on another switch or at least another machine if possible; nullopt if
  // all servers have backups.
  std::optional<ServerId> ServerWithout(const wire::LocalAddress& backup) const;
  // Rules out that the server's backup takes over by this attachment, or an earlier one.
  void Release(ServerId server, uint64_t attachment, const std::string& why, const JobFacts& facts);

  const FixedJobFacts setting_;
  Membership& membership_;
  ShardDirectory& shards_;
  ServerCalls& calls_;
  ServerObserver& observer_;
  EventLog& events_;

  SpareServers backups_;
  std::map<ServerId, Pairing> pairings_;
  // Servers that have had a backup in step, or have been a backup; and the time from which on all should have one.
  std::set<ServerId> backed_once_;
  absl::Time since_ = absl::InfiniteFuture();
  std::set<ServerId> promoted_;
  // Servers to be told, once it is saved, that they have taken over; and the membership's actions for then.
  std::map<ServerId, MembershipActions> promotions_;
  DeposedServers deposed_;
};

}  // namespace slackline::scheduler

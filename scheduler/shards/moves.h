// Servers that come and go while training goes on. Shards are copied and followed (TakeShards), and when the server
// that takes them has all, they are given up where they were and promoted where they are to be.
//
// A move is copied -> decided -> saved and told -> given up -> installed. Before it is decided, a move that fails has
// changed nothing; from then on it happens, whichever server dies. A scheduler that dies before it is saved forgets it.
// From in step on the server that has the shards answers nothing that the other has not, until it hears that the move
// is off; so whoever of the two is asked, nothing that was answered is missing.
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

#include "absl/status/status.h"
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

class Moves {
 public:
  // Does what others must know or do when shards have moved.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Tells the server which shards it has now. `actions` follow.
    virtual void ShardsChanged(ServerId server, const MembershipActions& actions) = 0;
    // Notes that the server holds shards that `from` held: they have weights, and are as durable as there.
    virtual void GotShards(ServerId server, ServerId from) = 0;
    // Notes that the server has no shards any more and leaves. `actions` follow.
    virtual void ServerLeft(ServerId server, const MembershipActions& actions) = 0;
  };

  Moves(FixedJobFacts setting, Membership& membership, ShardDirectory& shards, ServerCalls& calls,
        ServerObserver& observer, EventLog& events, Owner& owner)
      : setting_(std::move(setting)),
        membership_(membership),
        shards_(shards),
        calls_(calls),
        observer_(observer),
        events_(events),
        owner_(owner) {}

  // --- Wishes ---
  // Lets servers join, or lets them give up their shards and leave.
  //   kFailedPrecondition  shards of such a job cannot move, or that many servers would be too many or too few
  //   kNotFound            no server has this name
  //   kInvalidArgument     no change
  absl::StatusOr<wire::ChangeServersReply> Change(const wire::ChangeServersRequest& request);
  // Returns the number of servers that the job is to have in the end.
  uint32_t ServersWanted() const;
  uint64_t made() const { return made_; }

  // --- Servers without shards ---
  SpareServers& joining() { return joining_; }
  const SpareServers& joining() const { return joining_; }
  bool Draining(ServerId server) const { return draining_.contains(server); }
  // Servers that have left.
  const DeposedServers& drained() const { return drained_; }
  // Registers a process that is to get shards.
  //   kNotFound            it is something else
  //   kFailedPrecondition  the job has all the servers that it is to have
  absl::StatusOr<ServerRef> Register(const wire::RegisterServerRequest& request, const JobFacts& facts);
  void Drop(ServerId server, const std::string& why, const JobFacts& facts);
  // Returns the server's name, joining or not.
  std::string NameOf(ServerId server) const;
  // Returns the servers' shares of the shards by the speed of their links, as PlaceShards() takes them.
  std::map<ServerId, double> Shares() const;

  // --- The move ---
  // True from the decision on, until both servers have their shards.
  bool Decided() const { return move_ && move_->stage >= Stage::kDecided; }
  // True while a move is decided and not saved: nobody is to act upon it yet.
  bool Unsaved() const { return move_ && move_->stage == Stage::kDecided; }
  // Returns the generation of the shard map that everybody may have; 0 before there is one.
  uint64_t PublicGeneration() const;
  // True if the shards of a decided move come from or go to the server.
  bool Concerns(ServerId server) const { return Decided() && (move_->from == server || move_->to == server); }
  bool Takes(ServerId server) const { return move_ && move_->to == server; }
  // True if the server takes shards that another server must give up first.
  bool AwaitsGivingUp(ServerId server) const { return move_ && move_->to == server && move_->stage < Stage::kGivenUp; }
  // Begins or decides a move that is due, and gives up one that takes too long. `checkpoint`: true while a checkpoint
  // is in progress, whose parts would be those of other servers.
  void Tick(bool checkpoint, const JobFacts& facts);
  // Does the same as Backups::Hear(), for a server whose shards are to move.
  uint64_t Hear(ServerId server, const wire::BackupProgress& progress);
  void Installed(ServerId server, const JobFacts& facts);
  void ServerLost(ServerId server, const JobFacts& facts);
  void Refused(ServerId server, uint64_t move, const absl::Status& status, const JobFacts& facts);
  // Tells the server to take nothing, whatever an earlier scheduler or an earlier decision has said.
  void SendNothingToTake(ServerRef server);

  // --- What outlives the scheduler ---
  void Save(state::Scheduler& state) const;
  void Kept(const state::Scheduler& saved);
  // Requires: the shards are placed as the job's are at first, or not at all.
  void Restore(const state::Scheduler& state, absl::Time now);

  void Fill(absl::Time now, wire::GetStatusReply& reply) const;

 private:
  enum class Stage {
    kCopying,  // the other server follows
    kDecided,  // the directory has the move
    kTold,     // it is saved, and the giving server was told
    kGivenUp,  // the giving server has the shards no more
  };
  struct Move {
    uint64_t number = 0;
    ServerId from;
    ServerId to;
    std::vector<ShardId> shards;
    Incarnation from_incarnation;
    Incarnation to_incarnation;
    absl::Time begun;
    Generation before;  // generation of the map when the move was decided
    // Attachments: the taking server has all that the giving server has answered in this one (0: not yet), and up to
    // this one it was given up.
    uint64_t in_step = 0;
    uint64_t released = 0;
    Stage stage = Stage::kCopying;
    // Actions of the membership, to be taken when the two servers are told.
    MembershipActions from_actions;
    MembershipActions to_actions;
  };

  absl::Status CanMove() const;
  std::optional<ServerId> ServerNamed(const std::string& name) const;
  std::string ServerNames() const;
  ServerId NextServerId() const;
  std::string Describe(const Move& move) const;
  void WatchSpares(const JobFacts& facts);
  void Plan(const JobFacts& facts);
  void SendTake();
  // Decides the move.
  void Decide(absl::Time now);
  // Tells the server that has the shards; once it has given them up, TellTaker() tells the server that is to have them.
  void Tell();
  void TellTaker();
  void GiveUp(const std::string& why, const JobFacts& facts);
  void FinishDrains(absl::Time now);

  const FixedJobFacts setting_;
  Membership& membership_;
  ShardDirectory& shards_;
  ServerCalls& calls_;
  ServerObserver& observer_;
  EventLog& events_;
  Owner& owner_;

  SpareServers joining_;
  // Places for servers that are yet to come; and the number of all that were added.
  uint32_t to_come_ = 0;
  uint32_t added_ = 0;
  std::set<ServerId> draining_;
  DeposedServers drained_;
  bool rebalances_ = false;  // servers have joined
  std::optional<Move> move_;
  uint64_t last_number_ = 0;
  uint64_t made_ = 0;
  absl::Time again_ = absl::InfinitePast();  // time of the next try
};

}  // namespace slackline::scheduler

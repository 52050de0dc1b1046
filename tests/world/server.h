// A server process: the real ShardTable, with what is around it in slackline-ps played in virtual time: its
// registration and heartbeats (ps/service/registration.h), its streams (ps/service/stream.h, replication.h), the thread
// that keeps snapshots (ps/service/snapshot_keeper.h), and the calls of the scheduler (ps/service/control.h).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ps/service/shard_table.h"
#include "scheduler.pb.h"
#include "tests/world/replication.h"
#include "tests/world/scene.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene. What a life is to be is in the calls of the scheduler: nothing else tells one
// server
//                process from another.
class ServerProcess : public Host {
 public:
  ServerProcess(Scene& scene, std::string name, std::string address);
  ~ServerProcess() override;

  StreamEnd* Accept(StreamId stream, Method method) override;
  absl::Status Install(const wire::InstallShardsRequest& request);
  absl::StatusOr<wire::SetMembersReply> SetMembers(const wire::SetMembersRequest& request);
  absl::Status Take(const wire::TakeShardsRequest& request);
  void Stop(const wire::StopRequest& request);

  // A snapshot that is being written is written in part: so many of its steps.
  void DieWriting(uint64_t steps);
  bool durable() const { return table_.progress().durable; }
  Incarnation incarnation() const { return identity_.incarnation; }
  // Whose shards it has, or follows; 0 before it was told.
  ServerId server() const { return identity_.server; }
  // It has shards of its own, from the beginning, because it has taken over, or because they have moved here.
  bool serves() const { return !shards_.empty(); }
  // As its log has it.
  wire::BackupProgress backup() const { return table_.progress().backup; }
  // That one is its backup, has all, and their stream carries what happens.
  bool IsFollowedBy(const ServerProcess& copy) const;
  // Compares all that the two have, where nothing is on its way between them, and this one is at its end: the backup is
  // made to take over for that. Empty: all is equal; nullopt: they cannot be compared.
  std::optional<std::string> CompareWith(ServerProcess& backup);
  // Of its shards; empty before it has any.
  const std::vector<std::string>& folders() const { return folders_; }

 private:
  class Stream;
  struct Kept {
    uint64_t number = 0;
    ps::StoredShard stored;
    absl::Time due = absl::InfinitePast();
    bool gone = false;  // the shard lives elsewhere now
  };
  struct Writing {
    uint64_t number = 0;  // of what is kept
    ps::ShardSnapshot snapshot;
  };

  void Register();
  void Registered(const absl::StatusOr<wire::RegisterServerReply>& reply);
  void Beat();
  void Beaten(const absl::StatusOr<wire::HeartbeatReply>& reply, absl::Time begin);
  void Tick();
  void Keep();
  void Written();
  bool Open(Kept& kept);
  Kept& BeingWritten();
  // Closes what is kept of shards that live elsewhere, once nothing is written there.
  void DropGone();
  // What an event has changed in the shards.
  void Look();
  void End(const absl::Status& status);
  void Final();
  // What is different in that copy of a shard; empty: nothing.
  std::string Difference(ShardId shard, const ServerProcess& copy) const;

  Scene& scene_;
  bool ended_ = false;
  ps::ServerIdentity identity_;
  absl::Time heard_;
  absl::Time began_;
  absl::Duration back_off_;
  std::shared_ptr<bool> unpinned_ = std::make_shared<bool>(false);
  bool seeded_ = false;  // some shard has changed in that since Look()
  uint64_t seen_min_ = 0, seen_max_ = 0;
  Generation generation_;
  Epoch epoch_;  // of the members
  std::vector<ShardId> shards_;
  std::map<ShardId, bool> known_;  // to the ledger
  std::set<ShardId> moved_;        // here, and the ledger does not know
  std::vector<std::string> folders_;
  uint64_t last_kept_ = 0;
  std::vector<Kept> kept_;
  std::optional<Writing> writing_;
  uint64_t keeping_ = 0;  // of the last alarm of the keeper
  std::map<StreamId, std::unique_ptr<Stream>> streams_;
  wire::InstallShardsRequest follows_;  // as a backup
  Replication replication_;
  ps::ShardTable table_;
};

}  // namespace slackline::world

// A server process: the real ShardTable, unless bugs are planted. Everything around it in slackline-ps is simulated in
// virtual time: its registration and heartbeats (ps/service/registration.h), its streams (ps/service/worker_stream.h,
// replication.h), the thread that keeps snapshots (ps/service/snapshot_keeper.h), and the scheduler's calls
// (ps/service/control.h).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler.pb.h"
#include "tests/world/faulty_table.h"
#include "tests/world/replication.h"
#include "tests/world/scene.h"

namespace slackline::world {

// The scheduler's calls decide what a life is to be; nothing else tells one server process from another.
//
// Thread-safety: none.
// Ownership:     borrows the scene.
class ServerProcess : public Host {
 public:
  ServerProcess(Scene& scene, std::string name, std::string address);
  ~ServerProcess() override;

  StreamEnd* Accept(StreamId stream, Method method) override;
  absl::Status Install(const wire::InstallShardsRequest& request);
  wire::InstallShardsReply Restored() const { return table_.Restored(); }
  absl::StatusOr<wire::SetMembersReply> SetMembers(const wire::SetMembersRequest& request);
  absl::Status Take(const wire::TakeShardsRequest& request);
  void Stop(const wire::StopRequest& request);

  // Writes only the first `steps` steps of a snapshot that is being written, before the process dies.
  void DieWriting(uint64_t steps);
  bool durable() const { return table_.progress().report.durable(); }
  Incarnation incarnation() const { return identity_.incarnation; }
  // Returns the server whose shards this process has or follows; 0 before it was told.
  ServerId server() const { return identity_.server; }
  // True if it has shards of its own: from the beginning, because it has taken over, or because they have moved here.
  bool serves() const { return !shards_.empty(); }
  // Returns the progress of its backup, as its log has it.
  wire::BackupProgress backup() const { return table_.progress().report.backup(); }
  // Returns whether `copy` is its backup and has everything, and their stream carries what happens.
  bool IsFollowedBy(const ServerProcess& copy) const;
  // Compares all that the two have, if nothing is on its way between them and this process is at its end: for that, the
  // backup is made to take over. Returns an empty string if all is equal, and nullopt if they cannot be compared.
  std::optional<std::string> CompareWith(ServerProcess& backup);
  // Returns the folders of its shards; empty before it has any.
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
    uint64_t number = 0;  // number of the Kept that is written
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
  // Closes the stores of shards that live elsewhere, once nothing is written there.
  void DropGone();
  // Tells the ledger what an event has changed in the shards.
  void Look();
  void End(const absl::Status& status);
  void Final();
  // Returns what is different in `copy`'s copy of a shard; empty: nothing.
  std::string Difference(ShardId shard, const ServerProcess& copy) const;

  Scene& scene_;
  bool ended_ = false;
  ps::ServerIdentity identity_;
  absl::Time heard_;
  absl::Time began_;
  absl::Duration back_off_;
  std::shared_ptr<bool> unpinned_ = std::make_shared<bool>(false);
  bool seeded_ = false;  // a shard may have been seeded since Look()
  uint64_t seen_min_ = 0, seen_max_ = 0;
  Generation generation_;
  Epoch epoch_;  // epoch of the members
  std::vector<ShardId> shards_;
  std::map<ShardId, bool> known_;  // shards that the ledger knows
  std::set<ShardId> moved_;        // shards that moved here unknown to the ledger
  std::vector<std::string> folders_;
  uint64_t last_kept_ = 0;
  std::vector<Kept> kept_;
  std::optional<Writing> writing_;
  uint64_t keeping_ = 0;  // number of the keeper's last alarm
  std::map<StreamId, std::unique_ptr<Stream>> streams_;
  wire::InstallShardsRequest follows_;  // request that made it a backup
  Replication replication_;
  FaultyTable table_;
};

}  // namespace slackline::world

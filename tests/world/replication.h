// A server process's streams to those who follow it, and its own to the server that it follows: what
// ps/service/replica_stream.h does with gRPC, played in virtual time around the real ReplicaLog and BackupFeed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "parameter_server.pb.h"
#include "ps/service/shard_table.h"
#include "tests/world/scene.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene, the host and the table; outlives the table.
class Replication {
 public:
  // `look`: something has come that may have changed the shards.
  Replication(Scene& scene, const Host& host, ps::ShardTable& table, std::function<void()> look);
  ~Replication();

  // A backup opens a stream to this process.
  StreamEnd* Accept(StreamId stream);
  // As ps::ShardTable::Hooks::on_backup.
  void OnBackup(const wire::ReplicationSource* source);
  // T has passed.
  void Tick();
  // The process ends.
  void Close();
  // Of the server that is followed, its stream: 0 where there is none.
  StreamId followed() const;
  // It is one of a backup that this process has let in.
  bool Serves(StreamId stream) const;

 private:
  class Follower;
  class Link;

  Scene& scene_;
  const Host& host_;
  ps::ShardTable& table_;
  const std::function<void()> look_;
  std::map<StreamId, std::unique_ptr<Follower>> streams_;
  std::unique_ptr<Link> link_;
};

}  // namespace slackline::world

// Streams of a server process to its followers, and its own stream to the server that it follows. Simulates in virtual
// time what ps/service/replica_stream.h does with gRPC, around the real ReplicaLog and BackupFeed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "parameter_server.pb.h"
#include "tests/world/faulty_table.h"
#include "tests/world/scene.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene, the host and the table; outlives the table.
class Replication {
 public:
  // Calls `look` when something has come that may have changed the shards.
  Replication(Scene& scene, const Host& host, FaultyTable& table, std::function<void()> look);
  ~Replication();

  // Takes a stream that a backup opens to this process.
  StreamEnd* Accept(StreamId stream);
  // Does what ps::ShardTable::Hooks::on_backup asks.
  void OnBackup(const wire::ReplicationSource* source);
  // Called each time T has passed.
  void Tick();
  // Closes all streams, since the process ends.
  void Close();
  // Returns the stream to the followed server; 0 if there is none.
  StreamId followed() const;
  // Returns whether the stream is that of a backup which this process has let in.
  bool Serves(StreamId stream) const;

 private:
  class Follower;
  class Link;

  Scene& scene_;
  const Host& host_;
  FaultyTable& table_;
  const std::function<void()> look_;
  std::map<StreamId, std::unique_ptr<Follower>> streams_;
  std::unique_ptr<Link> link_;
};

}  // namespace slackline::world

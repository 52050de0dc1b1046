// A simulated server process: its shards, and one thread that handles one thing at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/codec/codec.h"
#include "parameter_server.pb.h"
#include "simulator/shard.h"
#include "simulator/world.h"
#include "worker/client/session.h"

namespace slackline::simulator {

// The worker's end of a stream.
class WorkerEndpoint {
 public:
  virtual ~WorkerEndpoint() = default;
  virtual size_t endpoint() const = 0;
  virtual void Deliver(const std::vector<ShardReply>& replies) = 0;
};

// Message from a worker to a server.
struct Message {
  ps::Sender sender;
  // Set if the message opens the stream.
  std::optional<ps::HelloEvent> hello;
  WorkerEndpoint* peer = nullptr;
  bool seed = false;
  // Pushes and pulls, in order.
  std::vector<worker::Session::Send> asks;
  std::shared_ptr<const Gradient> gradient;
};

// Thread-safety: none.
// Ownership:     borrows the world and the peers.
class Server {
 public:
  Server(World& world, std::string name);

  const std::string& name() const { return name_; }
  size_t endpoint() const { return endpoint_; }

  void Install(const wire::InstallShardsRequest& request);
  bool installed() const { return installed_; }
  // Sets the members. Returns the largest clock_min() of the shards.
  Clock64 SetMembers(const wire::SetMembersRequest& request);
  bool seeded() const { return seeded_; }

  // Sends `message` from the peer's endpoint to this server.
  void Send(Message message);
  // Handles the end of this worker's stream.
  void Disconnected(const ps::Sender& sender);
  void Tick();

  // Returns the weights of shard `id` that an evaluation uses now. Requires: the shard belongs to this server.
  ps::SliceView Evaluated(ShardId id) const { return shards_.at(id).Evaluated(); }
  // Returns the number of samples applied to these weights. Requires: the shard belongs to this server.
  uint64_t samples_applied(ShardId id) const { return shards_.at(id).samples_applied(); }
  uint64_t bytes_in() const { return bytes_in_; }
  // Return the bytes of a shard's values on the wire, in the job's encodings; averaged values are fp32.
  uint64_t PushBytes(ShardId shard) const;
  uint64_t PullBytes(ShardId shard) const;

 private:
  uint64_t Bytes(const Message& message) const;
  uint64_t Bytes(const ShardReply& reply) const;
  // Occupies the thread with `bytes` bytes, from the time at which it is free. Returns the time at which it is done.
  absl::Time Occupy(uint64_t bytes);
  void Handle(const Message& message);
  // Sends the replies of the shards.
  void Flush();

  World& world_;
  const codec::Codec push_codec_;
  const std::string name_;
  const size_t endpoint_;
  std::map<ShardId, Shard> shards_;
  std::map<ps::Sender, WorkerEndpoint*> peers_;
  bool installed_ = false;
  bool seeded_ = false;
  absl::Time busy_until_ = absl::InfinitePast();
  uint64_t bytes_in_ = 0;
};

}  // namespace slackline::simulator

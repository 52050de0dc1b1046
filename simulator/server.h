// A simulated server process: its shards, and one thread that does one thing after the other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/codec.h"
#include "parameter_server.pb.h"
#include "simulator/shard.h"
#include "simulator/world.h"
#include "worker/client/session.h"

namespace slackline::simulator {

// The worker's end of a stream.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual size_t endpoint() const = 0;
  virtual void Deliver(const std::vector<ShardReply>& replies) = 0;
};

// What a worker sends to a server at once.
struct Message {
  ps::Sender sender;
  // Opens the stream.
  std::optional<ps::HelloEvent> hello;
  Peer* peer = nullptr;
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
  // Returns the largest slowest clock of its shards.
  Clock64 SetMembers(const wire::SetMembersRequest& request);
  bool seeded() const { return seeded_; }

  // Sends `message` from the peer's endpoint to here.
  void Send(Message message);
  // The stream of this worker has ended.
  void Disconnected(const ps::Sender& sender);
  void Tick();

  // What evaluations of shard `id` are of now. Requires: it is one of this server's.
  ps::SliceView Evaluated(ShardId id) const { return shards_.at(id).Evaluated(); }
  // The same of the samples in those weights.
  uint64_t samples_applied(ShardId id) const { return shards_.at(id).samples_applied(); }
  uint64_t bytes_in() const { return bytes_in_; }
  // Of the values of a shard on the wire, in the job's encodings; averaged ones are fp32.
  uint64_t PushBytes(ShardId shard) const;
  uint64_t PullBytes(ShardId shard) const;

 private:
  uint64_t Bytes(const Message& message) const;
  uint64_t Bytes(const ShardReply& reply) const;
  // The thread is busy with so many bytes from the moment on at which it is free. Returns when it is done.
  absl::Time Occupy(uint64_t bytes);
  void Handle(const Message& message);
  // Sends what the shards have to say.
  void Flush();

  World& world_;
  const codec::Codec push_codec_;
  const std::string name_;
  const size_t endpoint_;
  std::map<ShardId, Shard> shards_;
  std::map<ps::Sender, Peer*> peers_;
  bool installed_ = false;
  bool seeded_ = false;
  absl::Time busy_until_ = absl::InfinitePast();
  uint64_t bytes_in_ = 0;
};

}  // namespace slackline::simulator

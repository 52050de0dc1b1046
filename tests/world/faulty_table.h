// A server's shards with planted bugs, which worlds must find.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/service/shard_table.h"
#include "tests/world/options.h"

namespace slackline::world {

// Plants bugs from outside of the table: changes messages on their way in and out. Without bugs it is the table.
//
// Differences from the same bug inside of the table:
//   keep_the_gone    Held pushes of workers that are gone stay held, and their streams stay open.
//   no_fast_forward  A worker's first Hello still advances its clock.
//   drop_accepted    The newest push of each worker reaches the table with the next one, and pulls do not wait.
//   take_late        A second held push of a worker is still late.
//   no_fencing       A server that has taken over still waits for the end of the lease before it.
//
// The world sends each item in a frame of its own, and each pull to one shard.
//
// Thread-safety: none.
class FaultyTable : public ps::ShardTable {
 public:
  FaultyTable(const Bugs& bugs, const job::Job& job, const Timeouts& timeouts, ps::ServiceMetrics& metrics,
              const TimeSource& time, Hooks hooks)
      : ShardTable(job, timeouts, metrics, time, std::move(hooks)), bugs_(bugs), mode_(job.consistency().mode()) {}

  absl::Status Install(const wire::InstallShardsRequest& request);
  absl::StatusOr<wire::SetMembersReply> SetMembers(const wire::SetMembersRequest& request);
  // `worker`: worker at the other end of the stream; nullopt if it is a reader.
  std::optional<absl::Status> Receive(ps::Peer& peer, const std::optional<ps::Sender>& worker,
                                      const wire::WorkerFrame& frame, const rpc::Payload& payload);
  // Returns an item for this worker as the worker must have it.
  wire::ServerItem AsSent(const std::optional<ps::Sender>& worker, wire::ServerItem item) const;

 private:
  using Stream = std::pair<ps::Sender, uint32_t>;  // worker and shard
  // Pushes that a worker says again, under other sequences.
  struct Renamed {
    uint64_t above = 0;  // sequences up to this one are those of the first time
    uint64_t by = 0;
  };
  // Push that was answered as applied, and that the table does not have yet.
  struct Accepted {
    uint64_t sequence = 0;
    bool whole = false;  // the commit has come
    std::vector<std::pair<wire::WorkerFrame, rpc::Payload>> chunks = {};
  };

  void Change(const ps::Sender& worker, wire::Hello& hello);
  void Change(const ps::Sender& worker, wire::PushChunk& chunk) const;
  void Change(const ps::Sender& worker, wire::Pull& pull) const;
  // Answers the push, and hands the table the push before.
  std::optional<absl::Status> Accept(ps::Peer& peer, const ps::Sender& worker, const wire::WorkerFrame& frame,
                                     const rpc::Payload& payload);
  std::optional<absl::Status> PassOn(ps::Peer& peer, const Accepted& accepted);
  // Returns nullopt in a backup, too, whose engine knows nothing yet.
  std::optional<ps::ShardSnapshot> SnapshotOf(uint32_t shard) const;
  // Returns what the shard's engine knows of the worker; nullopt if it has not heard of it, or has no weights.
  std::optional<ps::WorkerClock> Known(const Stream& stream) const;
  std::optional<Version> VersionOf(uint32_t shard) const;
  bool accepts() const { return bugs_.drop_accepted && mode_ == job::Consistency::SOFTSYNC; }

  const Bugs bugs_;
  const job::Consistency::Mode mode_;
  uint64_t generation_ = 0;
  std::map<uint32_t, wire::Member> members_;  // by number, as the table was told
  std::map<Stream, Renamed> renamed_;         // no_dedupe
  std::map<Stream, Accepted> accepted_;
};

}  // namespace slackline::world

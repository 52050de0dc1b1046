// A backup's side of replication: applies the frames of the followed server to copies of its shards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/frame.h"
#include "common/time/clock.h"
#include "parameter_server.pb.h"
#include "ps/host/shard_host.h"
#include "ps/host/staging.h"

namespace slackline::ps {

// Handles one stream. A further stream begins with new hosts and a new feed.
//
// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the hosts and the time.
// Copies:        wire -> shard: 0 for steps, 1 for a shard's initial arrays.
// Invariant:     an error ends the stream, and the process goes on.
class BackupFeed {
 public:
  using Hosts = std::map<uint32_t, std::unique_ptr<ShardHost>>;

  BackupFeed(JobId job, const Hosts& hosts, const TimeSource& time);

  // Handles one frame and its payload.
  //   kInvalidArgument, kInternal, kDataLoss, kFailedPrecondition  the error in the frame; the copies are then
  //                                                                worthless
  absl::Status Receive(const wire::ReplicaFrame& frame, const rpc::Payload& payload);

  // Values for the answer to the frames so far: items handled, and the newest send time to repeat.
  uint64_t handled() const { return handled_; }
  uint64_t echo_us() const { return echo_us_; }
  // Returns true if the copies have all that the server has answered. Holds while the stream lasts, and after it until
  // the server is told that it may go on alone. Returns false after any error.
  bool in_step() const { return in_step_; }
  // Time of the last frame. The server does not serve pulls for longer than 2 T from then.
  absl::Time heard() const { return heard_; }

 private:
  struct Copy {
    ShardHost* host = nullptr;
    std::vector<std::vector<rpc::Payload>> arrays;  // pieces received before the base
    bool based = false;
    std::shared_ptr<StagedPush> step;  // bytes of the next step
    bool step_complete = false;
  };

  absl::StatusOr<Copy*> Find(uint32_t shard, bool based);
  absl::Status HandleAll(const wire::ReplicaFrame& frame, const rpc::Payload& payload);
  absl::Status Handle(const wire::ReplicaItem& item, rpc::Payload payload);
  absl::Status Handle(const wire::ReplicaArray& array, rpc::Payload payload);
  absl::Status Handle(const wire::ReplicaBase& base);
  absl::Status Handle(const wire::ReplicaBytes& bytes, rpc::Payload payload);
  absl::Status Handle(const wire::ReplicaStep& step);
  absl::Status Handle(const wire::ReplicaAnswer& answer);
  absl::Status Handle(const wire::ReplicaClock& clock);
  absl::Status Handle(const wire::ReplicaCheck& check);
  absl::Status HandleInStep();

  const JobId job_;
  const TimeSource& time_;
  std::map<uint32_t, Copy> copies_;
  uint64_t handled_ = 0;
  uint64_t echo_us_ = 0;
  bool in_step_ = false;
  absl::Time heard_;
};

}  // namespace slackline::ps

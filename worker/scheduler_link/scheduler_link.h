// The worker's connection to the scheduler: joins, sends heartbeats, asks what to do next, and reports the results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/power/energy_sampler.h"
#include "common/time/timeouts.h"
#include "worker/base/progress.h"
#include "worker/client/client.h"
#include "worker/evaluation/evaluation.h"
#include "worker/model/model.h"
#include "worker/scheduler_link/work.h"

namespace slackline::job {
class Optimizer;
}  // namespace slackline::job

namespace slackline::worker {

// Thread-safety: one trainer thread; Interrupt() and progress() from any.
// Threads:       one (heartbeats), born in Create(), joined in the destructor.
class SchedulerLink {
 public:
  struct Options {
    // Place of the scheduler, see rpc::FollowedChannel.
    std::string address;
    // Protection of calls to the scheduler; null for plain text.
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    std::string name;
    uint64_t job_fingerprint = 0;
    std::vector<TensorInfo> tensors;
    // Settings of the optimizer that a script gives; null: none.
    std::shared_ptr<const job::Optimizer> optimizer = nullptr;
    // Group of each of `tensors` in optimizer->groups(), counted from 1; 0: none. Empty: none of them is in a group.
    std::vector<uint32_t> tensor_groups = {};
    uint64_t train_samples = 0;
    uint64_t test_samples = 0;
    uint64_t data_fingerprint = 0;  // fingerprint of the training data; 0: not known
    // Number of training images in each file that is spread over the nodes; empty if none are.
    std::vector<uint32_t> block_samples = {};
    // Returns which of these files are in memory only, for each request of work. Null: none are.
    std::function<std::vector<uint32_t>()> images_borrowed = nullptr;
    // Address by which the scheduler knows which of these files this worker's node keeps.
    std::string images_address = {};
    // HOST:PORT of the Prometheus endpoint; empty if there is none.
    std::string metrics_address = "";
    // Location in the network, see LocalAddress.topology; empty if not known.
    std::string topology = "";
    // Index into worker.groups.
    uint32_t group = 0;
    // Called each time the worker has joined and may train, on the thread that calls Join(). Must not call the link.
    // May be null.
    std::function<void()> on_live = nullptr;
    // Meters of this node, whose totals and samples are sent with each progress message. Outlives the link; null if
    // nothing is metered.
    power::EnergySampler* energy = nullptr;
    Timeouts timeouts;
    // Longest time without an answer from the scheduler. A value below timeouts.out_of_reach() counts as that.
    absl::Duration silence_max = absl::ZeroDuration();
    // Longest time that joining may take. A value below timeouts.startup counts as that.
    absl::Duration join_max = absl::ZeroDuration();
  };

  virtual ~SchedulerLink() = default;

  static std::unique_ptr<SchedulerLink> Create(const Options& options);

  // Sets the handler that is called at the end of each life, once, on the heartbeat thread. The status is OK, with a
  // reason, if the job has ended; kFailedPrecondition if this worker was expelled; kUnavailable, kDeadlineExceeded or
  // kResourceExhausted if the scheduler has been silent too long; any other code is the answer of the scheduler. The
  // handler must not block. Once set_on_end() returns, the previous handler is not running and never will again.
  using OnEnd = std::function<void(const absl::Status& status, const std::string& reason)>;
  virtual void set_on_end(OnEnd on_end) = 0;

  // Sets the handler that is called on the heartbeat thread with every shard map that is newer than the one that
  // GetShardMap() returned. Otherwise as for set_on_end().
  using OnMap = std::function<void(const ShardMap& map)>;
  virtual void set_on_map(OnMap on_map) = 0;

  // Registers, the first time or again, and waits until the worker is live.
  //   kInvalidArgument   the scheduler runs another job, or has another model, other data or another optimizer
  //   kUnimplemented     the scheduler is too old for a script's optimizer
  //   kAlreadyExists     another process has this name, and lives
  //   kDeadlineExceeded  the processes of the job did not find each other within the larger of join_max and
  //                      timeouts.startup
  virtual absl::StatusOr<WorkerMembership> Join() = 0;
  virtual absl::StatusOr<ShardMap> GetShardMap() = 0;
  // Asks for the next work. `range_done`: range just finished, 0 for none. `samples_per_second`: 0 if not known.
  // `reached`: positions in parts of a stream up to which every shard has answered.
  //   kFailedPrecondition  there is work, but this worker is not a member: call Join() again
  virtual absl::StatusOr<Work> NextWork(RangeId range_done, double samples_per_second,
                                        const std::vector<PartPosition>& reached) = 0;
  // Leases parts of a stream, until this worker holds `wanted` of them. Reports `reached` first. Returns all parts that
  // it holds; fewer than `wanted` if no other part is free.
  //   kInvalidArgument     the stream is not the other workers'
  //   kFailedPrecondition  this worker is not a member: call Join() again
  virtual absl::StatusOr<std::vector<PartLease>> LeaseParts(const StreamFacts& stream, uint32_t wanted,
                                                            const std::vector<PartPosition>& reached) = 0;
  virtual absl::Status ReportEvaluation(const EvaluationResult& result) = 0;
  // Tells the scheduler that this worker leaves, so that it waits for it no more. `trained`: finished part of the range
  // that the worker leaves.
  virtual void Leave(const std::string& reason, const RangePart& trained) = 0;

  // Waits for `duration`. Returns kCancelled at once if interrupted.
  virtual absl::Status Pause(absl::Duration duration) = 0;
  // Ends all waiting, now and later: Pause(), Join() and the retries of other calls return kCancelled. A call whose
  // attempt gets an answer still returns that answer. Leave() works as before.
  virtual void Interrupt(const std::string& reason) = 0;
  virtual ProgressBoard& progress() = 0;
};

}  // namespace slackline::worker

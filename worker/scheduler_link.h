// The worker's line to the scheduler: joins, beats, asks what to do next, reports what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/power/energy_sampler.h"
#include "common/timeouts.h"
#include "worker/client/client.h"
#include "worker/evaluation.h"
#include "worker/model/model.h"
#include "worker/progress.h"

namespace slackline::worker {

// This worker as a live member, in one of its lives.
struct Membership {
  JobId job;
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
  // It is to send its initial weights to all shards before it pulls.
  bool send_seed = false;
};

// Samples [begin, end) of the epoch's order.
struct RangeWork {
  RangeId range;
  uint32_t epoch = 0;  // from 0
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t batch_size = 0;  // 0: the job's
};
// The samples of a range up to this position of the epoch's order: every shard has answered for them. 0: of none.
struct RangePart {
  RangeId range;
  uint64_t done_to = 0;
};
struct EvaluationWork {
  uint32_t epoch = 0;  // completed ones
  bool final = false;
  std::string run_folder;
  uint64_t at_samples = 0;  // as the scheduler has it
};
// Out of the clock; ask again after `retry`.
struct StandbyWork {
  absl::Duration retry;
};
struct LeaveWork {
  std::string reason;
};
using Work = std::variant<RangeWork, EvaluationWork, StandbyWork, LeaveWork>;

// What was asked for, what came of it, and the files written for it, relative to the run folder.
struct EvaluationResult {
  EvaluationWork work;
  double loss = 0;     // mean over the samples
  double seconds = 0;  // that it took
  Metrics metrics;
  std::vector<std::string> class_names;  // in the order of labels
  std::vector<std::string> files;
};

// Thread-safety: one trainer thread; Interrupt() and progress() from any.
// Threads:       one (heartbeats), born in Create(), joined in the destructor.
class SchedulerLink {
 public:
  struct Options {
    // As rpc::FollowedChannel has it.
    std::string address;
    // Of calls to it; null for plain text.
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    std::string name;
    uint64_t job_fingerprint = 0;
    std::vector<TensorInfo> tensors;
    uint64_t train_samples = 0;
    uint64_t test_samples = 0;
    uint64_t data_fingerprint = 0;  // of the training data; 0: not known
    // host:port of the Prometheus endpoint; empty for none.
    std::string metrics_address = "";
    // Where this is in the network, as LocalAddress.topology; empty where nobody knows.
    std::string topology = "";
    // Which of worker.groups this is.
    uint32_t group = 0;
    // Called each time the worker has joined and may train, on the thread that joins; must not call the link. May be
    // null.
    std::function<void()> on_live = nullptr;
    // What the meters of this node say; goes with each word on progress. Null where nothing is metered.
    std::function<power::EnergyTotals()> energy = nullptr;
    Timeouts timeouts;
    // How long the scheduler may give no answer; less than timeouts.out_of_reach() counts as that.
    absl::Duration silence_max = absl::ZeroDuration();
    // How long joining may take; less than timeouts.startup counts as that.
    absl::Duration join_max = absl::ZeroDuration();
  };

  virtual ~SchedulerLink() = default;

  static std::unique_ptr<SchedulerLink> Create(const Options& options);

  // Is called once a life, on the heartbeat thread, when it is over: OK and a reason when the job has ended,
  // kFailedPrecondition when this worker was expelled, kUnavailable when the scheduler is silent. It must not block.
  // Once this returns, the handler before it is not running and never will again.
  using OnEnd = std::function<void(const absl::Status& status, const std::string& reason)>;
  virtual void set_on_end(OnEnd on_end) = 0;

  // Is called on the heartbeat thread with every shard map that is newer than the one GetShardMap() gave. Otherwise as
  // OnEnd.
  using OnMap = std::function<void(const ShardMap& map)>;
  virtual void set_on_map(OnMap on_map) = 0;

  // Registers (again), and waits until the worker is live.
  //   kInvalidArgument   the scheduler runs another job, or has another model or other data
  //   kAlreadyExists     another process has this name, and lives
  //   kDeadlineExceeded  the processes of the job did not find each other within timeouts.startup
  virtual absl::StatusOr<Membership> Join() = 0;
  virtual absl::StatusOr<ShardMap> GetShardMap() = 0;
  // `range_done`: the range just finished, 0 for none. `samples_per_second`: 0 when unknown.
  //   kFailedPrecondition  Join() again: there is work, and this worker is not a member
  virtual absl::StatusOr<Work> NextWork(RangeId range_done, double samples_per_second) = 0;
  virtual absl::Status ReportEvaluation(const EvaluationResult& result) = 0;
  // The last word: tells the scheduler to wait for this worker no more. `trained`: of the range that it leaves.
  virtual void Leave(const std::string& reason, const RangePart& trained) = 0;

  // Waits for `duration`; returns kCancelled at once when interrupted.
  virtual absl::Status Pause(absl::Duration duration) = 0;
  // Makes waiting calls, and later ones but Leave(), return kCancelled.
  virtual void Interrupt(const std::string& reason) = 0;
  virtual ProgressBoard& progress() = 0;
};

}  // namespace slackline::worker

// The worker's side of the exchange with all servers of a job.
//
// The trainer calls Pull() once, then Step() for every gradient; or its parts, so that a gradient goes out while it is
// still being computed, and several steps are in flight. Whatever a broken stream has swallowed is said again; pulled
// weights are written straight into the trainer's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/shm/segment.h"
#include "common/staleness_counts.h"
#include "common/timeouts.h"
#include "worker/client/push_encoder.h"
#include "worker/trace.h"

namespace slackline::rpc {
struct Protection;
}  // namespace slackline::rpc

namespace slackline::worker {

struct ServerInfo {
  ServerId server;
  std::string name;
  std::string address;
  // How processes of its host reach it, as wire::LocalAddress says; empty where they use the address.
  std::string host = {};
  std::string socket = {};
  std::string memory_socket = {};
  // Of the map in which the server was given its shards, in this life.
  Generation generation = {};

  friend bool operator==(const ServerInfo&, const ServerInfo&) = default;
};

// How to reach a server on the same host; each falls back to the one below it.
enum class SameHost { kSharedMemory, kUnix, kTcp };

struct ShardInfo {
  ShardId shard;
  uint64_t begin = 0;
  uint64_t end = 0;
  ServerId server;

  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

struct ShardMap {
  Generation generation;
  std::vector<ServerInfo> servers;
  std::vector<ShardInfo> shards;  // in the order of ShardId, which is the order of elements
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  // Elements from here on are frozen: pulled once, and never pushed. 0: none are.
  uint64_t frozen_from = 0;
};

struct ClientOptions {
  JobId job;
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
  // Only pulls; Step() is a mistake.
  bool reader = false;
  // Of a reader: pulls are of the weights' exponential average (optimizer.ema).
  bool averaged = false;
  uint32_t chunk_bytes = 1 << 20;
  // A shard of fewer bytes waits for its step to be committed: an item of its own would cost more than its bytes.
  uint64_t early_bytes_min = 256 << 10;
  // Steps that may be in flight.
  uint32_t window = 1;
  // Weights are read in the order of elements as they come: with a window of 1, shards that wait for the commit go out
  // first layers first, so that they are served first (Jayarajan et al. 2019).
  bool first_layers_first = false;
  // The exchange goes on between calls, in a thread of its own, which costs two hand-overs a call: for steps that are
  // on their way while the caller computes. Else it goes on only during calls, in the caller's thread.
  bool background = false;
  // How pushes that travel on a stream are encoded, from the model's first element on; what no run covers is fp32.
  std::vector<CodecRun> push_runs = {};
  // What of it is encoded where gradients are made, by PlanChunks(); the push memory has no values there.
  DevicePlan on_device = {};
  // Of pulled weights on a stream: fp32 or bf16.
  codec::Encoding pull_encoding = codec::Encoding::kFp32;
  SameHost same_host = SameHost::kSharedMemory;
  // Of the streams; null for plain text.
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  // Where pushes lie that servers of this host read in place; others are sent by socket. May be null.
  std::shared_ptr<shm::Segment> push_segment = nullptr;
  // Of the thread of its own, in a background client; empty: those of the thread that makes the client.
  std::vector<uint32_t> cores = {};
  Timeouts timeouts;
  // Where it is recorded what is encoded, pushed and pulled.
  TraceRow trace = {};
  // Called on the I/O thread when a wait becomes long (who is awaited, since when) and when streams come and go.
  // Must not block or call back.
  std::function<void(const std::string& message)> on_notice;
};

// What a device may encode in a client's stead: all that would be encoded, but for the shards of servers of this host
// that may read gradients in shared memory, as floats.
std::vector<PlannedChunk> PlanChunks(const ClientOptions& options, const ShardMap& map);

struct PushInfo {
  uint64_t samples = 0;
  double loss = 0;
  double gradient_norm = 0;
  RangeId range = {};
  uint64_t range_samples_done = 0;
};

struct StepReport {
  Clock64 clock;
  uint32_t shards_applied = 0;
  uint32_t shards_discarded = 0;
  uint32_t shards_quarantined = 0;  // of those, as an outlier
  uint64_t lost = 0;                // sub-pushes that restores have lost since the last step
  uint64_t staleness_sum = 0;       // over the shards that applied
  uint64_t staleness_max = 0;
  StalenessCounts staleness;
  uint64_t slack = 0;  // this worker's clock minus the slowest's, largest over shards
  // Values only, on whatever way: of this step's push, as encoded; of weights, all that came since the last step.
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
  absl::Duration waited;
  // From its commit until the last shard had answered, and until the weights after it were there.
  absl::Duration pushed;
  absl::Duration pulled;
};

// Thread-safety: one trainer thread.
// Threads:       with options.background one (I/O), born in Create(), joined in the destructor; else none.
// Ownership:     borrows the push memory of a step until it is finished, and its parameters until the next one is:
//                servers send only what has changed, the rest is taken from where the last weights were written.
// Errors:        a call that fails ends the exchange: the streams are cut, later calls return the same status, and
//                going on takes a new client.
class Client {
 public:
  virtual ~Client() = default;

  //   kInvalidArgument  the map has gaps, or no shards
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options, const ShardMap& map);

  // Sends initial weights to every shard; shards that have some keep theirs.
  virtual absl::Status Seed(absl::Span<const float> parameters, absl::Duration timeout) = 0;

  // Writes the newest weights to `parameters` (map.elements long).
  //   kDeadlineExceeded  names the shards, servers and workers awaited
  //   kFailedPrecondition, kInvalidArgument, ...   a server's final word
  virtual absl::Status Pull(absl::Span<float> parameters, absl::Duration timeout) = 0;

  // Opens the next step, whose push (map.elements long, frozen ones count for nothing) is still being made. Returns at
  // once, as the two calls that follow it; failures show when the step is finished.
  //   kFailedPrecondition  options.window steps are in flight, one is open already, or nothing was pulled yet
  virtual absl::Status OpenStep(absl::Span<const float> push) = 0;
  // push[from, map.elements) of the open step stays as it is from now on, until the step is finished: where the
  // exchange goes on in the background, the shards in it go out to servers that do not read them in shared memory.
  // `from` falls from call to call. Cheap where there is nothing to do.
  virtual void Ready(uint64_t from) = 0;
  // Pushes the open step as the next sequence, and asks for the weights after it, which will be written to `parameters`
  // (map.elements long): from now on, until the step is finished.
  //   kFailedPrecondition  no step is open
  //   kInvalidArgument     `parameters` are those of another step in flight
  virtual absl::Status CommitStep(const PushInfo& info, absl::Span<float> parameters) = 0;
  // Both, one after the other.
  virtual absl::Status BeginStep(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters) = 0;
  // Waits until every shard has answered and served the oldest step in flight. A wait at a consistency gate is bounded
  // in silence, not in time: `timeout` runs anew with every word from the server. After BeginFinish() its timeout
  // counts.
  //   kFailedPrecondition  no step is in flight
  virtual absl::StatusOr<StepReport> FinishStep(absl::Duration timeout) = 0;
  // Begins to wait for the oldest step in flight, and returns at once; AwaitPulled() and FinishStep() follow. False,
  // and nothing has begun: the exchange goes on only during calls, or the window is not 1.
  virtual bool BeginFinish(absl::Duration timeout) {
    (void)timeout;
    return false;
  }
  // After BeginFinish(): waits until parameters[0, end) of the step are there, and says up to where they are.
  virtual absl::StatusOr<uint64_t> AwaitPulled(uint64_t end) {
    (void)end;
    return absl::FailedPreconditionError("nothing has begun to finish");
  }
  // Committed and not finished.
  virtual size_t steps_in_flight() const = 0;
  // BeginStep() and FinishStep(). Requires: no step is in flight.
  virtual absl::StatusOr<StepReport> Step(absl::Span<const float> push, const PushInfo& info,
                                          absl::Span<float> parameters, absl::Duration timeout) = 0;

  // Says goodbye and closes the streams. Waits for no more than `timeout`.
  virtual void Close(const std::string& reason, absl::Duration timeout) = 0;

  // Servers have come back elsewhere, or shards have moved, from any thread: streams are opened anew where that is so,
  // and what was under way goes on there. A map with other shards ends the exchange with kFailedPrecondition.
  virtual void Remap(const ShardMap& map) = 0;

  // Makes a call in progress return kCancelled, from any thread (the heartbeat learnt that the job is over).
  virtual void Cancel(const std::string& reason) = 0;

  virtual Clock64 clock() const = 0;
};

}  // namespace slackline::worker

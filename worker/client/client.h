// Client: a worker's exchange of pushes and pulls with all servers of a job.
//
// The trainer calls Pull() once and then Step() for every gradient. It may call the parts of a step instead, so that a
// gradient goes out while it is still being computed, or several steps are in flight. After a broken stream, the client
// repeats everything that was lost. Pulled weights are written straight into the trainer's memory.
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
#include "common/base/ids.h"
#include "common/base/staleness_counts.h"
#include "common/shm/segment.h"
#include "common/time/timeouts.h"
#include "worker/base/step_report.h"
#include "worker/base/stream_parts.h"
#include "worker/base/trace.h"
#include "worker/client/push_encoder.h"

namespace slackline::rpc {
struct Protection;
}  // namespace slackline::rpc

namespace slackline::worker {

struct ServerInfo {
  ServerId server;
  std::string name;
  std::string address;
  // Addresses for processes on the same host, as wire::LocalAddress defines them. Empty if those processes use
  // `address`.
  std::string host = {};
  std::string socket = {};
  std::string memory_socket = {};
  // Generation of the map in which this incarnation of the server received its shards.
  Generation generation = {};

  friend bool operator==(const ServerInfo&, const ServerInfo&) = default;
};

// Ways to reach a server on the same host. Each falls back to the next one in the list.
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
  std::vector<ShardInfo> shards;  // ordered by ShardId, which is also the order of elements
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  // First frozen element. Frozen elements are pulled once and never pushed. 0 if no elements are frozen.
  uint64_t frozen_from = 0;
};

struct ClientOptions {
  JobId job;
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
  // True if the client only pulls. Step() is then an error.
  bool reader = false;
  // True if a reader pulls the exponential average of the weights (optimizer.ema).
  bool averaged = false;
  uint32_t chunk_bytes = 1 << 20;
  // Smallest shard, in bytes, that may be sent before its step is committed. For a smaller shard, a separate item would
  // cost more than its bytes.
  uint64_t early_bytes_min = 256 << 10;
  // Largest number of steps in flight.
  uint32_t window = 1;
  // True if the weights are read in the order of elements as they arrive. With a window of 1, shards that wait for the
  // commit are then sent first layers first, so that they are also served first (Jayarajan et al. 2019).
  bool first_layers_first = false;
  // True if the exchange continues between calls, in its own thread. This costs two thread hand-overs per call and
  // suits steps that are in transit while the caller computes. Otherwise the exchange proceeds only during calls, in
  // the caller's thread.
  bool background = false;
  // Encodings of pushes that travel on a stream, from the model's first element on. Elements that no run covers are
  // fp32.
  std::vector<CodecRun> push_runs = {};
  // Chunks that are encoded where the gradients are made, as PlanChunks() returns them. The push memory has no values
  // for these chunks.
  DevicePlan on_device = {};
  // Encoding of pulled weights on a stream: fp32 or bf16.
  codec::Encoding pull_encoding = codec::Encoding::kFp32;
  SameHost same_host = SameHost::kSharedMemory;
  // Protection of the streams. Null for plain text.
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  // Segment of the pushes that servers on this host read in place. Pushes outside of it are sent by socket. May be
  // null.
  std::shared_ptr<shm::Segment> push_segment = nullptr;
  // Cores for the client's own thread, with `background`. If empty, that thread runs on the cores of the thread that
  // creates the client.
  std::vector<uint32_t> cores = {};
  Timeouts timeouts;
  // Trace row that records encoding, pushes and pulls.
  TraceRow trace = {};
  // Reports long waits (who is awaited, since when) and streams that open or break. Called on the I/O thread. Must not
  // block or call back.
  std::function<void(const std::string& message)> on_notice;
};

// Returns the chunks that a device may encode instead of the client. These are all chunks that would be encoded, except
// those of shards on servers of this host that may read gradients in shared memory, as floats.
std::vector<PlannedChunk> PlanChunks(const ClientOptions& options, const ShardMap& map);

struct PushInfo {
  uint64_t samples = 0;
  double loss = 0;
  double gradient_norm = 0;
  RangeId range = {};
  uint64_t range_samples_done = 0;
  // Learning rates of this push, as wire::PushCommit defines them; empty: the job's.
  std::vector<double> learning_rates = {};
  // Parts of a stream that the worker holds, with their positions including this push.
  std::vector<PartPosition> parts = {};
};

// Client pushes gradients to all servers of a job and pulls weights from them.
//
// Thread-safety: one trainer thread.
// Threads:       with options.background, one I/O thread, started in Create() and joined in the destructor; else none.
// Ownership:     borrows the push memory of a step until the step is finished, and its parameters until the next step
//                is finished: servers send only what has changed, and the client copies the rest from the place where
//                the last weights were written.
// Errors:        a failed call ends the exchange: the streams are cut, and later calls return the same status. To
//                continue, create a new client.
class Client {
 public:
  virtual ~Client() = default;

  //   kInvalidArgument  the map has gaps, or no shards
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options, const ShardMap& map);

  // Sends initial weights to every shard. Shards that already have weights keep them.
  virtual absl::Status Seed(absl::Span<const float> parameters, absl::Duration timeout) = 0;

  // Writes the newest weights to `parameters` (map.elements long).
  //   kDeadlineExceeded  names the shards, servers and workers awaited
  //   kFailedPrecondition, kInvalidArgument, ...   the final answer of a server
  virtual absl::Status Pull(absl::Span<float> parameters, absl::Duration timeout) = 0;

  // Opens the next step, whose push is still being computed. `push` is map.elements long; its frozen elements are
  // ignored. Returns at once, as do Ready() and CommitStep(); their failures are reported when the step is finished.
  //   kFailedPrecondition  options.window steps are in flight, a step is already open, or nothing has been pulled yet
  virtual absl::Status OpenStep(absl::Span<const float> push) = 0;
  // Promises that push[from, map.elements) of the open step does not change until the step is finished. If the exchange
  // runs in the background, the shards in this range are now sent to servers that do not read them in shared memory.
  // `from` falls from call to call. Cheap if there is nothing to do.
  virtual void Ready(uint64_t from) = 0;
  // Pushes the open step as the next sequence, and requests the resulting weights. The client writes them to
  // `parameters` (map.elements long) at any time between this call and the end of the step.
  //   kFailedPrecondition  no step is open
  //   kInvalidArgument     `parameters` are those of another step in flight
  virtual absl::Status CommitStep(const PushInfo& info, absl::Span<float> parameters) = 0;
  // Calls OpenStep() and CommitStep().
  virtual absl::Status BeginStep(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters) = 0;
  // Blocks until every shard has answered and served the oldest step in flight. At a consistency gate, `timeout` bounds
  // the silence and not the total wait: it restarts with every message from the server. After BeginFinish() the timeout
  // of that call applies.
  //   kFailedPrecondition  no step is in flight
  virtual absl::StatusOr<StepReport> FinishStep(absl::Duration timeout) = 0;
  // Begins to wait for the oldest step in flight, and returns at once; AwaitPulled() and FinishStep() follow. Returns
  // false and begins nothing if the exchange proceeds only during calls, or if the window is not 1.
  virtual bool BeginFinish(absl::Duration timeout) {
    (void)timeout;
    return false;
  }
  // Blocks until parameters[0, end) of the step have arrived. Returns the end of the range that has arrived. Call it
  // after BeginFinish().
  virtual absl::StatusOr<uint64_t> AwaitPulled(uint64_t end) {
    (void)end;
    return absl::FailedPreconditionError("nothing has begun to finish");
  }
  // Number of steps that are committed and not finished.
  virtual size_t steps_in_flight() const = 0;
  // Calls BeginStep() and FinishStep(). Requires: no step is in flight.
  virtual absl::StatusOr<StepReport> Step(absl::Span<const float> push, const PushInfo& info,
                                          absl::Span<float> parameters, absl::Duration timeout) = 0;

  // Sends a goodbye and closes the streams. Blocks for at most `timeout`.
  virtual void Close(const std::string& reason, absl::Duration timeout) = 0;

  // Announces that servers have returned at other addresses or that shards have moved. Opens the affected streams anew
  // and continues pending work on them. Callable from any thread. A map with other shards ends the exchange with
  // kFailedPrecondition.
  virtual void Remap(const ShardMap& map) = 0;

  // Makes a call in progress return kCancelled, for example after a heartbeat learns that the job is over. Callable
  // from any thread.
  virtual void Cancel(const std::string& reason) = 0;

  virtual Clock64 clock() const = 0;
};

}  // namespace slackline::worker

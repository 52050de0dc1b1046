// Real server exchanges in the test's process, and the settings with which real clients reach them on every path.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/metrics/metrics.h"
#include "common/security/security.h"
#include "common/time/clock.h"
#include "ps/service/sequencer.h"
#include "worker/client/client.h"

namespace slackline {

// True in sanitizer builds: sanitizers take memory of their own, and time.
#ifdef SLACKLINE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Path on which a worker and a server of one host exchange tensors.
enum class Path { kTcp, kUnix, kSharedMemory };
inline constexpr Path kPaths[] = {Path::kTcp, Path::kUnix, Path::kSharedMemory};
std::string Name(Path path);
std::optional<Path> ToPath(const std::string& name);
std::string Name(job::Consistency::Mode mode);
// Returns the words with which a client's notice names the path.
std::string Words(Path path);

struct ClusterShape {
  // Number of elements of each shard; shards go to the servers in turn.
  std::vector<uint64_t> shards = {9001, 1};
  uint32_t servers = 1;
  uint32_t workers = 2;
  uint32_t window = 1;
  job::Consistency::Mode mode = job::Consistency::ASYNC;
  Path path = Path::kSharedMemory;
  // Heartbeat interval; nullopt: one that suits tests.
  std::optional<absl::Duration> heartbeat = std::nullopt;
  // Folder in which servers keep snapshots; empty: no snapshots are kept.
  std::string snapshot_folder = {};
  // Security of the servers, of the scheduler that gives them their shards, and of the workers.
  security::Security server_security = {};
  security::Security scheduler_security = {};
  security::Security worker_security = {};
  // Numbers of averaged and of frozen elements. Both lie at the end of the model, the frozen ones last.
  uint64_t averaged = 0;
  uint64_t frozen = 0;
  // Element ranges [begin, end) of the job's groups, in the order of the groups.
  std::vector<std::pair<uint64_t, uint64_t>> groups = {};
  // Changes other settings of the job; may be null.
  std::function<void(job::Job&)> change = nullptr;
};

// Returns the options of worker `number` (from 1) of a cluster, without a place for its notices.
worker::ClientOptions WorkerOptions(uint32_t number, Path path);

// Converts the addresses of a server to a line of text that processes can tell one another, and back.
std::string ToLine(const worker::ServerInfo& server);
worker::ServerInfo ToServer(const std::string& line);
// Returns a map of `shards` shards of about equal size, all on this server.
worker::ShardMap MapOf(const worker::ServerInfo& server, uint64_t elements, uint32_t shards);

// Servers in the test's process, with the scheduler's calls to them. The optimizer is SGD with learning rate 0.5, so
// that sums of small integers are exact in any order.
//
// Thread-safety: const calls are safe.
class Cluster {
 public:
  static constexpr JobId kJob{77};
  static constexpr Generation kGeneration{5};
  static constexpr float kLearningRate = 0.5F;

  explicit Cluster(const ClusterShape& shape);
  ~Cluster();

  const worker::ShardMap& map() const { return map_; }
  const Timeouts& timeouts() const { return timeouts_; }
  // Returns the options of worker `number` (from 1), with its notices in notices(number).
  worker::ClientOptions ClientOptions(uint32_t number) const;
  std::vector<std::string> notices(uint32_t number) const ABSL_LOCKS_EXCLUDED(notices_->mutex);
  // Replaces the set of live workers.
  void SetMembers(const std::vector<uint32_t>& workers);
  void StopServer(size_t index) { servers_[index]->exchange.reset(); }
  // Stops the server as SIGTERM does, with last snapshots.
  void TellServerToStop(size_t index) {
    servers_[index]->exchange->SnapshotAtEnd();
    StopServer(index);
  }
  // Starts a stopped server again, at another address; it continues from its snapshots. Workers learn of it by map().
  void StartServerAgain(size_t index);
  // Adds a server without shards. Returns its index.
  size_t AddServer();
  // Moves shards as the scheduler does: they are copied and followed, given up at `from`, and promoted at `to`. Workers
  // learn of the move by map().
  void MoveShards(size_t from, size_t to, const std::vector<uint32_t>& shards);
  // Moves shards up to the point at which `from` could give them up.
  void BeginMove(size_t from, size_t to, const std::vector<uint32_t>& shards);
  ps::Sequencer& server(size_t index) { return *servers_[index]->exchange; }

  // Returns the largest number of bytes that may be staged.
  uint64_t staging_bytes_max() const { return map_.elements * sizeof(float) * (shape_.window * shape_.workers + 1); }
  double pinned_versions() { return metrics().gauge("slackline_ps_pinned_versions", "").value(); }
  Metrics& metrics(size_t server = 0) { return servers_[server]->metrics; }
  ps::ShardTable::Progress progress(size_t server = 0);
  // Returns the highest version of the server's shards.
  uint64_t version_max(size_t server = 0) { return progress(server).report.version_max(); }

 private:
  struct Server {
    Metrics metrics;
    std::unique_ptr<ps::Sequencer> exchange;
    std::unique_ptr<wire::ParameterServerControl::Stub> control;
  };
  struct Notices {
    absl::Mutex mutex;
    std::map<uint32_t, std::vector<std::string>> of ABSL_GUARDED_BY(mutex);
  };

  void Listen(size_t index);
  // Repeats the call while its error is retryable, as the scheduler does if a server's disk is slow. Fails the test
  // after 20 s.
  static void ExpectTaken(const std::function<grpc::Status()>& call);
  // Sets the trained and the frozen elements, the groups, and the samples per epoch.
  template <typename Request>
  void SetParts(Request& request) const;
  void Install(size_t index, bool restore = false, bool moves = false);
  void SendMembers(size_t index);

  const ClusterShape shape_;
  const SteadyTime time_;
  Timeouts timeouts_;
  worker::ShardMap map_;
  std::vector<std::unique_ptr<Server>> servers_;
  wire::SetMembersRequest members_;
  uint64_t moves_ = 0;
  // Notices by number of worker; shared with clients' callbacks.
  const std::shared_ptr<Notices> notices_ = std::make_shared<Notices>();
};

// A worker with its push memory, whose parts are used in turn.
class TestTrainer {
 public:
  // If `shared`, the gradients lie in a segment that servers may map.
  TestTrainer(worker::ClientOptions options, const worker::ShardMap& map, bool shared = true);

  worker::Client& client() { return *client_; }
  // Returns the parameters after the last pull or finished step.
  absl::Span<float> parameters() { return absl::MakeSpan(parameters_[finished_ % parameters_.size()]); }
  void Seed(absl::Span<const float> weights);
  void Pull();
  // Pushes the gradient, by chance in one call, or in pieces from the last element on while it is being written.
  void BeginStep(absl::Span<const float> gradient);
  worker::StepReport FinishStep();
  // Finishes a step like FinishStep(), for tests in which that may fail.
  absl::StatusOr<worker::StepReport> TryFinishStep(absl::Duration timeout);
  void Step(absl::Span<const float> gradient) {
    BeginStep(gradient);
    FinishStep();
  }

 private:
  std::vector<absl::Span<float>> memory_;
  std::shared_ptr<shm::Segment> segment_;
  std::vector<float> heap_;
  std::vector<std::vector<float>> parameters_;  // a buffer for each step in flight
  std::unique_ptr<worker::Client> client_;
  std::minstd_rand random_;
  size_t begun_ = 0;
  size_t finished_ = 0;
};

// Returns multiples of 1/256 between -4 and 4.
std::vector<float> RandomValues(size_t count, std::mt19937& random);
// Subtracts `factor` x `gradient` from `weights`.
void StepPlainly(absl::Span<const float> gradient, float factor, std::vector<float>& weights);
// Returns whether all values equal `value`. Quicker than gmock's matchers on a large model.
bool AllAre(float value, absl::Span<const float> values);
// Returns a random seed and prints it.
unsigned PrintedSeed();

// Runs `what`, which must end by itself within 10 s; a machine with other things to do may need that long. After 10 s
// the test has failed, and `end_it` must make `what` end.
void ExpectToEnd(const std::function<void()>& what, const std::function<void()>& end_it);

// Calls `what` until it returns true or `timeout` has passed; returns whether it did. For state that other threads
// reach by themselves.
bool Eventually(const std::function<bool()>& what, absl::Duration timeout = absl::Seconds(20));

}  // namespace slackline

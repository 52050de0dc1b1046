// Real server exchanges in the test's process, and what real clients need to reach them on every path.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "ps/service/exchange.h"
#include "worker/client/client.h"

namespace slackline {

// How a worker and a server of one host meet.
enum class Path { kTcp, kUnix, kSharedMemory };
inline constexpr Path kPaths[] = {Path::kTcp, Path::kUnix, Path::kSharedMemory};
std::string Name(Path path);
std::string Name(job::Consistency::Mode mode);
// What a client's notice says of it.
std::string Words(Path path);

struct ClusterShape {
  // Elements of each shard; shards go to the servers in turn.
  std::vector<uint64_t> shards = {9001, 1};
  uint32_t servers = 1;
  uint32_t workers = 2;
  uint32_t window = 1;
  job::Consistency::Mode mode = job::Consistency::ASYNC;
  Path path = Path::kSharedMemory;
  // For whatever else the job file says.
  std::function<void(job::Job&)> change = nullptr;
};

// SGD with learning rate 0.5, so that sums of small integers are exact in any order.
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
  // Worker `number` (from 1), with its notices in notices(number).
  worker::ClientOptions ClientOptions(uint32_t number) const;
  std::vector<std::string> notices(uint32_t number) const ABSL_LOCKS_EXCLUDED(notices_->mutex);
  // Replaces the set of live workers.
  void SetMembers(const std::vector<uint32_t>& workers);
  void StopServer(size_t index) { servers_[index]->exchange.reset(); }

  double pinned_versions() { return metrics().gauge("slackline_ps_pinned_versions", "").value(); }
  Metrics& metrics(size_t server = 0) { return servers_[server]->metrics; }
  // The server's highest version over its shards.
  uint64_t version_max(size_t server = 0) { return servers_[server]->exchange->progress()->version_max; }

 private:
  struct Server {
    Metrics metrics;
    std::unique_ptr<ps::Exchange> exchange;
    std::unique_ptr<wire::ParameterServerControl::Stub> control;
  };
  struct Notices {
    absl::Mutex mutex;
    std::map<uint32_t, std::vector<std::string>> of ABSL_GUARDED_BY(mutex);
  };

  void Install(size_t index);

  const ClusterShape shape_;
  const SteadyTime time_;
  Timeouts timeouts_;
  worker::ShardMap map_;
  std::vector<std::unique_ptr<Server>> servers_;
  uint64_t epoch_ = 0;
  // Shared with clients' callbacks.
  const std::shared_ptr<Notices> notices_ = std::make_shared<Notices>();
};

// A worker with its push memory, of which parts are used in turn.
class TestTrainer {
 public:
  // `shared`: the gradients lie in a segment that servers may map.
  TestTrainer(worker::ClientOptions options, const worker::ShardMap& map, bool shared = true);

  worker::Client& client() { return *client_; }
  // After the last pull or finished step.
  absl::Span<float> parameters() { return absl::MakeSpan(parameters_[finished_ % parameters_.size()]); }
  void Seed(absl::Span<const float> weights);
  void Pull();
  // In one call, or in pieces from the last element on while the gradient is being written.
  void BeginStep(absl::Span<const float> gradient);
  worker::StepReport FinishStep();
  void Step(absl::Span<const float> gradient) {
    BeginStep(gradient);
    FinishStep();
  }

 private:
  std::vector<absl::Span<float>> memory_;
  std::shared_ptr<shm::Segment> segment_;
  std::vector<float> heap_;
  std::vector<std::vector<float>> parameters_;  // one for each step in flight
  std::unique_ptr<worker::Client> client_;
  std::minstd_rand random_;
  size_t begun_ = 0;
  size_t finished_ = 0;
};

// Multiples of 1/256 between -4 and 4.
std::vector<float> RandomValues(size_t count, std::mt19937& random);
// weights - factor x gradient.
void StepPlainly(absl::Span<const float> gradient, float factor, std::vector<float>& weights);
// Whether all values are equal. Quicker than gmock's matchers on a large model.
bool AllAre(float value, absl::Span<const float> values);
// A random seed, printed.
unsigned PrintedSeed();

// Asks until `what` holds; fails the test after `timeout` and says so. For state that other threads reach by
// themselves.
bool Eventually(const std::function<bool()>& what, absl::Duration timeout = absl::Seconds(20));

}  // namespace slackline

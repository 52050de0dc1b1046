// EmbeddedJob: an EmbeddedWorker with everything that the job file asks for: security, metrics, the link to the
// scheduler, and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/parameter_groups.h"
#include "common/job/script_group.h"
#include "common/optimizer/optimizer.h"
#include "worker/embedded/embedded_worker.h"

namespace slackline::worker {

// EmbeddedJob reads a job and creates its worker.
//
// Thread-safety: as EmbeddedWorker; const calls from any thread.
class EmbeddedJob {
 public:
  struct Options {
    std::string job_file;
    std::vector<std::string> overrides = {};
    // Scheduler of the job: its HOST:PORT, or the file to which the scheduler writes its HOST:PORT.
    std::string scheduler;
    std::string name;
    // Position in the network, in the form of SchedulerLink::Options.
    std::string topology = "";
  };
  // Settings that the caller's own loop must follow.
  struct Settings {
    std::string name;
    uint64_t seed = 1;
    uint32_t batch_size = 64;
    uint32_t accumulate = 1;
    uint32_t epochs = 1;
    uint32_t threads = 1;  // number of threads that compute
    uint32_t window = 1;   // number of steps that may be in flight
    // Number of the caller's own steps in a round of local training; each push is one round. 0: no local training.
    uint32_t local_steps = 0;
    bool names_lr = false;  // the job file sets optimizer.lr
    // Settings of the servers' optimizer, and the patterns of its groups.
    OptimizerConfig optimizer = {};
    std::vector<ParameterGroupRule> group_rules = {};
  };
  struct Model {
    // Trained tensors first, then buffers. Their order determines their offsets.
    std::vector<TensorInfo> tensors;
    uint64_t train_samples = 0;
    std::optional<StreamFacts> stream = {};
    uint64_t test_samples = 0;
    // Memory for weights: settings().window parts, each as long as all tensors. The first part holds the initial
    // weights. Borrowed.
    std::vector<absl::Span<float>> parameters;
  };

  // Optimizer of the script, for the settings that the job file leaves to it.
  struct ScriptOptimizer {
    std::vector<std::string> settings;  // "kind=adamw", "lr=0.002", ...
    std::vector<ScriptGroup> groups;
    // Group of each trained tensor, counted from 1; 0: none.
    std::vector<uint32_t> members;
  };

  // Reads the job file and its credentials. Opens no connection yet.
  //   kInvalidArgument  the job has a setting that only the C++ worker supports: local.epochs, worker.slowdown; or a
  //   bad
  //                     name or address
  //   others            as ReadJobFile() and security::Security::Open()
  static absl::StatusOr<std::unique_ptr<EmbeddedJob>> Read(const Options& options);
  virtual ~EmbeddedJob() = default;

  // Changes with SetOptimizer() only.
  virtual const Settings& settings() const = 0;
  // Gives settings of the optimizer, which are in settings() afterwards. Call this before Open(), whose tensors it is
  // about.
  //   kInvalidArgument     the job file says otherwise, or a setting is not allowed
  //   kFailedPrecondition  Open() was called before
  virtual absl::Status SetOptimizer(const ScriptOptimizer& optimizer) = 0;
  // Creates worker() and push(). Call this once.
  //   kInvalidArgument     no tensors, sizes that do not match, or a wire.groups pattern that matches no tensor
  //   kFailedPrecondition  Open() was called before
  virtual absl::Status Open(const Model& model) = 0;
  // The worker that Open() created.
  virtual EmbeddedWorker& worker() = 0;
  // Memory for gradients: settings().window parts, each as long as all tensors, initially all 0. The parts are in
  // shared memory if servers on this host read them in place.
  virtual const std::vector<absl::Span<float>>& push() = 0;

  // Writes model.safetensors into the run's folder, after the pull for the last evaluation, and adds its name to
  // `result`.
  //   kResourceExhausted, kUnavailable  as DurableFile
  virtual absl::Status WriteWeights(EvaluationResult& result) = 0;
};

}  // namespace slackline::worker

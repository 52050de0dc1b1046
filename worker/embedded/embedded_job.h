// An EmbeddedWorker with all that it needs, as the job file says: security, metrics, the line to the scheduler, memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/embedded/embedded_worker.h"

namespace slackline::worker {

// Thread-safety: as EmbeddedWorker; the const calls from any thread.
class EmbeddedJob {
 public:
  struct Options {
    std::string job_file;
    std::vector<std::string> overrides = {};
    // HOST:PORT of the job's scheduler, or the file that it writes that to.
    std::string scheduler;
    std::string name;
    // Where this is in the network, as SchedulerLink::Options has it.
    std::string topology = "";
  };
  // The settings that the caller's own loop must follow.
  struct Settings {
    std::string name;
    uint64_t seed = 1;
    uint32_t batch_size = 64;
    uint32_t accumulate = 1;
    uint32_t epochs = 1;
    uint32_t threads = 1;  // to compute with
    uint32_t window = 1;   // steps that may be in flight
  };
  struct Model {
    // Trained ones first, then buffers; offsets follow from the order.
    std::vector<TensorInfo> tensors;
    uint64_t train_samples = 0;
    uint64_t test_samples = 0;
    // settings().window parts, each as long as the tensors; the first one with the initial weights. Borrowed.
    std::vector<absl::Span<float>> parameters;
  };

  // Reads the job file and its credentials; talks to nobody yet.
  //   kInvalidArgument  the job has a setting that is the C++ worker's only: local training, worker.slowdown;
  //                     a bad name or address
  //   others            as ReadJobFile() and security::Security::Open() have them
  static absl::StatusOr<std::unique_ptr<EmbeddedJob>> Read(const Options& options);
  virtual ~EmbeddedJob() = default;

  virtual const Settings& settings() const = 0;
  // Makes worker() and push(). Once.
  //   kInvalidArgument     no tensors, sizes do not fit, a wire.groups pattern that matches none
  //   kFailedPrecondition  it was called before
  virtual absl::Status Open(const Model& model) = 0;
  // What Open() made.
  virtual EmbeddedWorker& worker() = 0;
  // settings().window parts, each as long as the tensors, all 0 at first; in shared memory where servers of this host
  // read them in place.
  virtual const std::vector<absl::Span<float>>& push() = 0;

  // Writes model.safetensors into the run's folder, after the last evaluation's pull, and names it in `result`.
  //   kResourceExhausted, kUnavailable  as DurableFile has them
  virtual absl::Status WriteWeights(EvaluationResult& result) = 0;
};

}  // namespace slackline::worker

// Replica: one GPU of a group, with its model, its streams, and the work that it enqueues in a step.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/device.h"
#include "worker/base/trace.h"
#include "worker/cuda/communicator.h"
#include "worker/cuda/runtime.h"
#include "worker/cuda/square_sums.h"
#include "worker/cuda/sum_encoder.h"
#include "worker/group/arrival_gate.h"
#include "worker/model/model.h"

namespace slackline::worker::gpu {

// Number of elements in a bucket, that is 4 MiB. The first bucket ends at the end of the flat vector.
inline constexpr uint64_t kBucketElements = 1 << 20;

inline uint64_t BucketsOf(uint64_t elements) { return (elements + kBucketElements - 1) / kBucketElements; }
inline uint64_t BucketBegin(uint64_t elements, uint64_t bucket) {
  return elements - std::min(elements, (bucket + 1) * kBucketElements);
}

// Replica runs one GPU's part of each step. It uses three streams: LibTorch's, for computing; one for sums, so that
// they overlap with backward; one for copies between host and device. Events order the streams, so that no thread waits
// in between.
//
// Copies:        parameters: host -> first device -> others; gradients: backward -> push: 1, sum: in place; -> host: 1,
//                and for encoded elements as SumEncoder says.
// Thread-safety: one thread, except for communicator().
class Replica {
 public:
  // Number of parameters that are sent at a time. All devices have the first layers while the last ones are still in
  // transit.
  static constexpr uint64_t kPieceElements = 4 << 20;

  struct Options {
    Device device;
    Rank rank;
    ncclUniqueId id = {};
    absl::Duration timeout = absl::ZeroDuration();
    // Reports that a bucket of the sum has arrived on the host; only for the first device. Called from a CUDA thread,
    // which may not call CUDA.
    std::function<void()> on_bucket;
    TraceRow trace = {};
  };
  // Host memory that receives a step's results.
  struct Destination {
    float* push = nullptr;       // null: the result of the step is dropped
    std::byte* block = nullptr;  // bytes of encoded chunks, after EncodeBy()
    // Encoded values that are added to the residuals before encoding.
    std::vector<ChunkStore::Returned> returned = {};
  };
  struct Order {
    BatchView part;  // empty: this device adds nothing to the sum
    float weight = 1;
    // True if the teacher moves before the step.
    bool moves_teacher = false;
    // Gate that parameters pass as they arrive. Null if all parameters are present.
    ArrivalGate* gate = nullptr;
    // Parameters on the host, and the destination of the push; only for the first device. The destination is known once
    // all parameters are present.
    const float* parameters = nullptr;
    const Destination* destination = nullptr;
  };

  // Creates a replica. All devices of a group must call this at the same time.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const ModelSpec& spec, uint64_t seed, const Options& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Model& model() { return *model_; }
  // Null for a group of one device.
  Communicator* communicator() { return communicator_.get(); }

  // Runs one step: parameters in, gradients summed, sum out. Returns when backward is over; sums and copies may still
  // be in progress. If the part is invalid, the other devices still receive what they wait for.
  absl::StatusOr<StepResult> Step(const Order& order);
  // Makes later steps encode the chunks of this plan, which must outlive them. Residuals start at 0. An empty plan
  // stops encoding. Only for the first device, between steps.
  absl::Status EncodeBy(const ChunkPlan& plan);
  // Norm of the trained elements of the sum, once all buckets of the step are on the host. Only for the first device.
  double norm() const { return squares_->norm(); }
  // Uploads parameters for an evaluation. Requires: no step is in progress.
  absl::Status Upload(const float* parameters);
  absl::Status Download(float* parameters);
  // Blocks until the device has done all its work: copies to host memory that is about to go, after a step that failed.
  void Settle() const;

 private:
  Replica(const Options& options) : options_(options) {}

  absl::Status Prepare(const ModelSpec& spec, uint64_t seed);
  class LayerWait;

  // Orders the streams after those of the previous step.
  absl::Status BeginStep();
  // Enqueues the copies and broadcasts of parameters()[0, end) for this step, unless that is already done.
  absl::Status SendParameters(uint64_t end);
  absl::Status SendPiece(uint64_t begin);
  // Makes later work on compute() wait for parameters()[0, end) of this step.
  absl::Status AwaitParameters(uint64_t end);
  absl::Status MoveTeacher();
  void Ready(uint64_t from);
  absl::Status SendBucket(uint64_t bucket);
  absl::Status CopyBucket(const Elements& elements);
  // Makes later work on `after` wait for the work that `before` has now.
  absl::Status Chain(cudaStream_t before, cudaStream_t after);
  absl::Status Check(cudaError_t said, const char* doing) const;
  bool first() const { return options_.rank.number == 0; }
  cudaStream_t compute() const { return static_cast<cudaStream_t>(model_->stream()); }

  const Options options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<SquareSums> squares_;  // null for all but the first device
  std::unique_ptr<SumEncoder> encoder_;  // null: everything goes to the host as floats
  cudaStream_t sums_ = nullptr;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t order_event_ = nullptr;
  std::vector<cudaEvent_t> uploaded_;  // events, one per piece of the parameters: the piece has arrived

  // State of the step in progress.
  Order order_;
  float* host_push_ = nullptr;
  uint64_t uploads_sent_ = 0;  // number of elements whose transfer is enqueued
  uint64_t sent_ = 0;          // number of buckets sent
  size_t uploads_known_ = 0;   // number of pieces that compute() already waits for
  absl::Status broken_;
};

}  // namespace slackline::worker::gpu

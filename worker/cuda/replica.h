// One GPU of a group: its model, its streams, and what it puts on them in a step.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/device.h"
#include "worker/cuda/communicator.h"
#include "worker/cuda/runtime.h"
#include "worker/cuda/sum_encoder.h"
#include "worker/group/arrival_gate.h"
#include "worker/model/model.h"
#include "worker/trace.h"

namespace slackline::worker::gpu {

// Elements of a bucket: 4 MiB. The first ends where the flat vector ends.
inline constexpr uint64_t kBucketElements = 1 << 20;

inline uint64_t BucketsOf(uint64_t elements) { return (elements + kBucketElements - 1) / kBucketElements; }
inline uint64_t BucketBegin(uint64_t elements, uint64_t bucket) {
  return elements - std::min(elements, (bucket + 1) * kBucketElements);
}

// Three streams: LibTorch's, on which it computes; one for sums, so that they go on beside backward; one for copies
// between host and device. Events order them; nobody waits in between.
//
// Copies: parameters: host -> first device -> others; gradients: backward -> push: 1, sum: in place; -> host: 1, of
//         what is encoded as SumEncoder says.
// Thread-safety: one thread, but for communicator().
class Replica {
 public:
  // So many parameters at a time: the first layers are with all devices while the last ones are still on their way.
  static constexpr uint64_t kPieceElements = 4 << 20;

  struct Options {
    Device device;
    Rank rank;
    ncclUniqueId id = {};
    absl::Duration timeout = absl::ZeroDuration();
    // Of the first device only: a bucket of the sum has come to the host. From a thread of CUDA, which may not call
    // CUDA.
    std::function<void()> on_bucket;
    TraceRow trace = {};
  };
  // Memory of the host.
  struct Destination {
    float* push = nullptr;       // null: nowhere, the step is for nothing
    std::byte* block = nullptr;  // after EncodeBy(): of what is encoded
    // What is added to the residuals before.
    std::vector<ChunkStore::Returned> returned = {};
  };
  struct Order {
    BatchView part;  // empty: this device adds nothing
    float weight = 1;
    // Null: all parameters are there.
    ArrivalGate* gate = nullptr;
    // Of the first device only: the host's parameters, and where what is pushed goes, which is known once all of them
    // are there.
    const float* parameters = nullptr;
    const Destination* destination = nullptr;
  };

  // Call it for all devices of a group at the same time.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const ModelSpec& spec, uint64_t seed, const Options& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Model& model() { return *model_; }
  // Null of a group of one.
  Communicator* communicator() { return communicator_.get(); }

  // One step: parameters in, gradients summed, and out. Over when backward is; sums and copies may still be under way.
  // Where the part is wrong, the other devices still get what they wait for.
  absl::StatusOr<StepResult> Step(const Order& order);
  // Steps from here on encode the chunks of this plan, which outlives them; residuals are 0. An empty one: none. Of the
  // first device, between steps.
  absl::Status EncodeBy(const ChunkPlan& plan);
  // Of the step whose buckets are all on the host. Requires: chunks are encoded.
  double norm() const { return encoder_->norm(); }
  // The same parameters for an evaluation. Requires: no step is under way.
  absl::Status Upload(const float* parameters);
  absl::Status Download(float* parameters);

 private:
  Replica(const Options& options) : options_(options) {}

  absl::Status Prepare(const ModelSpec& spec, uint64_t seed);
  class LayerWait;

  // Orders the streams behind those of the step before.
  absl::Status BeginStep();
  // Hands parameters()[0, end) out to the copies and sums of this step, as far as that has not been done.
  absl::Status SendParameters(uint64_t end);
  absl::Status SendPiece(uint64_t begin);
  // What compute() gets from now on comes after parameters()[0, end) of this step.
  absl::Status AwaitParameters(uint64_t end);
  void Ready(uint64_t from);
  absl::Status SendBucket(uint64_t bucket);
  absl::Status CopyBucket(uint64_t bucket, const Elements& elements);
  // What `before` has now comes before what `after` gets from now on.
  absl::Status Chain(cudaStream_t before, cudaStream_t after);
  absl::Status Check(cudaError_t said, const char* doing) const;
  bool first() const { return options_.rank.number == 0; }
  cudaStream_t compute() const { return static_cast<cudaStream_t>(model_->stream()); }

  const Options options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<SumEncoder> encoder_;  // null: all goes to the host as floats
  cudaStream_t sums_ = nullptr;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t order_event_ = nullptr;
  std::vector<cudaEvent_t> uploaded_;  // one a piece of the parameters: it is there

  // Of the step that is under way.
  Order order_;
  float* host_push_ = nullptr;
  uint64_t uploads_sent_ = 0;  // elements that are handed out
  uint64_t sent_ = 0;          // buckets
  size_t uploads_known_ = 0;   // pieces that compute() waits for already
  absl::Status broken_;
};

}  // namespace slackline::worker::gpu

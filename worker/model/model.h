// A neural network on one device, with all its numbers in flat buffers. LibTorch stays behind this header.
//
// The flat vector has the trained parameters first, in the order of tensors(), then the buffers that are averaged
// (batch-norm statistics). Parameters are views into parameters(); gradients are moved to push() as backward makes
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"

namespace slackline::worker {

enum class ModelKind { kMlp, kCnn, kResnet18 };

struct ModelSpec {
  ModelKind kind = ModelKind::kMlp;
  std::vector<uint32_t> hidden;   // mlp and cnn; resolved: never empty
  std::vector<uint32_t> filters;  // cnn: two
  bool batch_norm = false;        // cnn; a resnet always has it
  uint32_t classes = 10;
  // One image: channels x height x width.
  uint32_t channels = 1;
  uint32_t height = 28;
  uint32_t width = 28;
};

struct TensorInfo {
  std::string name;  // as in state_dict
  std::vector<uint64_t> shape;
  bool trained = true;
  uint64_t offset = 0;  // first element in the flat vector

  uint64_t elements() const;
};

// Images as the data room prepares them: normalised float32, n x channels x height x width.
struct Batch {
  std::vector<float> images;
  std::vector<int64_t> labels;
  uint64_t size() const { return labels.size(); }
};

// A view of a part of a batch.
struct BatchView {
  absl::Span<const float> images;
  absl::Span<const int64_t> labels;
};

struct StepResult {
  uint64_t samples = 0;
  double loss = 0;       // mean cross-entropy over the samples
  uint64_t correct = 0;  // largest output is the label
};

// Thread-safety: none.
class Model {
 public:
  virtual ~Model() = default;

  // Builds the network with the initialisation that PyTorch (torchvision for a resnet) gives it under `seed`: equal
  // specs and seeds give equal weights.
  //   kInvalidArgument  the spec cannot be built (image too small, wrong number of filters)
  // On a GPU parameters() and push() are its memory, which the host cannot read, and so is what is lent; weights are
  // those of a CPU.
  //   kInternal         LibTorch's message: there is no such device, or no memory
  static absl::StatusOr<std::unique_ptr<Model>> Create(const ModelSpec& spec, uint64_t seed, const Device& device = {});

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual uint64_t elements() const = 0;
  virtual uint64_t trained_elements() const = 0;

  // Weights and buffers, elements() long. Whoever writes them does so between steps.
  virtual absl::Span<float> parameters() = 0;
  // What is pushed after a step, elements() long: gradients, then the buffers' new values.
  virtual absl::Span<float> push() = 0;
  // Makes `memory` the push() of the steps that follow, so that what an earlier step made can still be on its way.
  // Borrows it. Requires: elements() floats, on a cache line.
  virtual void UsePush(absl::Span<float> memory) = 0;
  // Makes `memory` and what it holds the parameters() of the steps that follow, so that newer weights can arrive
  // elsewhere meanwhile. Borrows it. Requires: elements() floats, on a cache line.
  virtual void UseParameters(absl::Span<float> memory) = 0;

  // push()[from, elements()) will not change any more in this step. `from` falls while backward goes on. On a GPU: once
  // stream() has come to where it is at the call, which comes from a thread of LibTorch while the caller waits.
  using Ready = std::function<void(uint64_t from)>;

  // Forward and backward; fills push() with the gradient of the mean loss (replacing the last one). Calls `ready`, in
  // this thread, whenever more of it is complete.
  //   kInvalidArgument  a label is not below classes; sizes do not fit
  //   kInternal         LibTorch's message
  virtual absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) = 0;
  absl::StatusOr<StepResult> Step(const BatchView& batch) {
    return Step(batch, [](uint64_t) {});
  }
  // Forward only, in evaluation mode; writes the predicted class of each image to `predictions`.
  virtual absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) = 0;

  // Of a GPU, what steps put their work on: a cudaStream_t.
  virtual void* stream() const { return nullptr; }
};

// Threads LibTorch uses inside one operation: for the calling thread, and for every thread whose first operation comes
// later. Call it before models and groups are created. More than the free cores is much slower than one: the threads
// spin while they wait for each other.
void SetComputeThreads(uint32_t threads);
// "2.13.0".
std::string LibTorchVersion();
// The half of LibTorch that computes on GPUs, as a file; empty where LibTorch is a build for CPUs.
std::string LibTorchForGpus();
// Loads it. Call it before models of GPUs are created.
//   kFailedPrecondition  it is not there, does not load, or finds no GPU; says why
absl::Status LoadLibTorchForGpus();

}  // namespace slackline::worker

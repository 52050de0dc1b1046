// What simulated workers compute: gradients and evaluations, with LibTorch or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/optimizer/aligned_floats.h"
#include "ps/slice.h"
#include "worker/local/local_round.h"
#include "worker/model/model.h"
#include "worker/scheduler_link.h"

namespace slackline::simulator {

// A version of each shard, in the order of the model's elements. Empty where nothing is computed.
using Weights = std::vector<ps::SliceView>;

struct Gradient {
  worker::StepResult result;
  double norm = 0;     // over the trained elements
  AlignedFloats push;  // the whole model's, as Model::push(); null where nothing is computed
  // Of the worker's inner optimizer after this round of local training; null where it keeps none.
  std::shared_ptr<OptimizerState> local_state;
};

// What all workers agree on.
struct Learned {
  std::vector<worker::TensorInfo> tensors;
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
  // Of the training images, where epochs have each class as often as any other; else empty.
  std::vector<uint32_t> balanced_labels = {};
};

// A worker's step: the mean gradient of these training images, or a round of local training on them.
struct StepTask {
  Weights weights;
  std::vector<uint32_t> images;
  uint32_t epoch = 0;  // from 0
  // So many at once; more are several batches, whose gradients are averaged.
  size_t batch_size = 1;
  worker::LocalConfig local = {};
  // What the worker's last round has left. Nobody else has it until this one is over.
  std::shared_ptr<OptimizerState> local_state = nullptr;
};

// Thread-safety: none; one thread calls it.
class Computation {
 public:
  using Pending = std::future<absl::StatusOr<std::shared_ptr<const Gradient>>>;

  virtual ~Computation() = default;

  virtual const Learned& learned() const = 0;
  // elements() long; empty where nothing is computed.
  virtual absl::Span<const float> initial_weights() const = 0;
  // Begins a step. Steps of different workers run side by side; each gives the same bits whichever thread runs it.
  virtual Pending Begin(StepTask task) = 0;
  // Over all test images. With `work.final` also writes the files of a run's end into work.run_folder.
  virtual absl::StatusOr<worker::EvaluationResult> Evaluate(const Weights& weights,
                                                            const worker::EvaluationWork& work) = 0;
  // Processor time of one step on so many images on one core of this machine.
  virtual absl::StatusOr<absl::Duration> Measure(uint64_t samples) = 0;
};

}  // namespace slackline::simulator

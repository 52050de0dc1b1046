// The computation of simulated workers: gradients and evaluations, with LibTorch or not at all.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/optimizer/aligned_floats.h"
#include "ps/shard/slice.h"
#include "worker/local_training/local_round.h"
#include "worker/model/model.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace slackline::simulator {

// Versions of all shards, in the order of the model's elements. Empty if nothing is computed.
using Weights = std::vector<ps::SliceView>;

struct Gradient {
  worker::StepResult result;
  double norm = 0;     // norm over the trained elements
  AlignedFloats push;  // the whole model's, as Model::push(); null if nothing is computed
  // State of the worker's inner optimizer after this round of local training; null if the worker keeps none.
  std::shared_ptr<OptimizerState> local_state;
};

// Facts about model and data that are equal for all workers.
struct Learned {
  std::vector<worker::TensorInfo> tensors;
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
  // Labels of the training images if epochs have all classes equally often; otherwise empty.
  std::vector<uint32_t> balanced_labels = {};
  // False if steps have no accuracy, as without labels.
  bool counts_correct = true;
  // First image of each file if epochs visit the files one after the other; otherwise empty.
  std::vector<uint64_t> file_starts = {};
};

// A worker's step: the mean gradient of these training images, or a round of local training on them.
struct StepTask {
  Weights weights;
  std::vector<uint32_t> images;
  uint32_t epoch = 0;  // counted from 0
  // Images per batch. More images make several batches, whose gradients are averaged.
  size_t batch_size = 1;
  worker::LocalConfig local = {};
  // State that the worker's last round has left. Only this round uses it until the round is over.
  std::shared_ptr<OptimizerState> local_state = nullptr;
};

// Thread-safety: none; one thread calls it.
class Computation {
 public:
  using Pending = std::future<absl::StatusOr<std::shared_ptr<const Gradient>>>;

  virtual ~Computation() = default;

  virtual const Learned& learned() const = 0;
  // Returns the initial weights: Learned::elements values, or none if nothing is computed.
  virtual absl::Span<const float> initial_weights() const = 0;
  // Begins a step. Steps of different workers run in parallel; each gives the same bits whichever thread runs it.
  virtual Pending Begin(StepTask task) = 0;
  // Evaluates all test images. With `work.final` also writes the files of a run's end into work.run_folder.
  virtual absl::StatusOr<worker::EvaluationResult> Evaluate(const Weights& weights,
                                                            const worker::EvaluationWork& work) = 0;
  // Returns the processor time of one step on `samples` images on one core of this machine.
  virtual absl::StatusOr<absl::Duration> Measure(uint64_t samples) = 0;
};

}  // namespace slackline::simulator

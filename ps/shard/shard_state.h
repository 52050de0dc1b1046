// Numbers of one shard: its slice of the weights, the optimizer's state, and the step that joins them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/byte_segments.h"
#include "common/codec/codec.h"
#include "common/optimizer/averaged_weights.h"
#include "common/optimizer/optimizer.h"
#include "ps/shard/slice.h"

namespace slackline::ps {

// Position of a shard in the model's flat vector.
struct ShardExtent {
  uint64_t begin = 0;
  uint64_t end = 0;
  // Number of elements, from the shard's beginning, that gradients train; those behind them are averaged.
  uint64_t trained = 0;
  // Number of elements at the shard's end that are frozen: no push has them.
  uint64_t frozen = 0;

  uint64_t size() const { return end - begin; }
  // Number of elements in a push: trained and averaged ones.
  uint64_t pushed() const { return size() - frozen; }
};

// Elements of a shard from the end of the run before it up to `end`, and the group of the optimizer's settings for
// them.
struct GroupRun {
  uint64_t end = 0;
  std::optional<uint32_t> group;
};

// Run of elements and their encoded bytes. Indices of top-k and blocks of int8 count from the run's first element.
struct EncodedPiece {
  uint64_t elements = 0;
  codec::Codec codec = {};
  // Encoded values, checked with codec::Checker.
  ByteSegments bytes;
};

// Push, and its share in the step.
struct Contribution {
  // Pushed elements of the shard, piece after piece.
  std::vector<EncodedPiece> pieces;
  // Weight of the push; the weights of a step sum to 1.
  double weight = 1;
  // Norm of the gradient over the whole model, for clipping.
  double gradient_norm = 0;
  // Weights that the gradient was computed from, for delay compensation. Empty if they are not known or are the current
  // ones; the gradient is then used as it is.
  SliceView reference = {};
};

struct StepArguments {
  // Factor for the learning rate and decoupled decay, never for the gradient.
  double lr_scale = 1;
  // Rate for averaged elements: value += average_rate x (mean of the pushed values - value).
  double average_rate = 1;
  // Number of samples behind the step; the schedule's time advances by it after the step.
  uint64_t samples = 0;
  // Number of batches of one worker that the step counts as, if the learning rate is scaled by them.
  double batches = 1;
  // Mean staleness of the gradients, in versions.
  double staleness = 0;
  // Number of live workers; 0: unknown, and nothing is predicted.
  uint64_t workers = 0;
  // Learning rates in place of the job's, before lr_scale: of elements in no group, then of each group. Empty: the
  // job's.
  std::vector<double> learning_rates = {};
};

// Progress of a shard's training.
struct ShardProgress {
  uint64_t samples_applied = 0;
  // Number of the optimizer's steps, and the mean staleness of their gradients.
  uint64_t steps = 0;
  double staleness_mean = 0;
};

// All that a shard has learned, as it was at one moment: references, which cost no copy.
//
// Thread-safety: as SliceView's.
struct ShardView {
  SliceView weights;
  // Arrays in the order of ShardState::arrays().
  std::vector<SliceView> arrays;
  ShardProgress progress;
};

// Returns the length of an array: the shard's size for the averaged weights, else the number of trained elements.
inline uint64_t ArrayElements(const ShardExtent& extent, absl::string_view array) {
  return array == kAveragedWeights ? extent.size() : extent.trained;
}

// Reads part of a stored state: the values [begin, begin + out.size()) of the weights (`array` is nullopt) or of an
// array.
using ReadKept = absl::FunctionRef<absl::Status(std::optional<size_t> array, uint64_t begin, absl::Span<float> out)>;

// Holds the numbers of one shard, and applies steps to them.
//
// Thread-safety: none; the shard's sequencer calls it. Any thread may read the results of View() and Snapshot().
class ShardState {
 public:
  // `chunk_elements`: copy-on-write unit of the slice. `storage`: memory in which the chunks of PulledView() lie.
  ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, uint64_t chunk_elements,
             SliceStorage storage = {})
      : ShardState(extent, optimizer, {}, chunk_elements, std::move(storage)) {}
  // `groups`: consecutive runs from the shard's first element on; elements behind the last run have no group.
  // Requires: the groups of the runs are in `optimizer`.
  ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, std::vector<GroupRun> groups,
             uint64_t chunk_elements, SliceStorage storage = {});

  // Takes initial weights: extent().size() float32.
  //   kInvalidArgument     another length, or a value that is not finite; nothing changed
  //   kFailedPrecondition  the shard has weights already; nothing changed
  absl::Status Seed(const ByteSegments& bytes);
  bool seeded() const { return seeded_; }

  // Returns references to everything as it is now. While they are held, steps write each chunk that they change into
  // fresh memory, once.
  ShardView Snapshot() const;
  // Takes over the state of an earlier Snapshot(). `read` gives the values, array after array, each front to back.
  // Returns errors of `read` too; the shard must then not be used.
  //   kFailedPrecondition  the shard has weights already
  absl::Status Restore(const ShardProgress& progress, ReadKept read);

  // Applies one optimizer step on the weighted mean of the contributions, or what OptimizerConfig::aggregation makes of
  // them, which counts each alike. Each contribution is decoded, clipped, then compensated; averaged elements are
  // neither clipped nor compensated. The sums run in the order given, so that equal inputs give equal bits. `mean_out`,
  // if not empty, receives the mean that the step used. The same step with it alone, not clipped, gives the same bits,
  // except with adaptive delay compensation. Requires: the bytes were checked; the pieces of every contribution have
  // extent().pushed() elements, and byte lengths that these can have; arguments.learning_rates is empty or as long as
  // learning_rates().
  void Apply(absl::Span<const Contribution> contributions, const StepArguments& arguments,
             absl::Span<float> mean_out = {});

  // Returns references to the weights as they are now; costs no copy.
  SliceView View() const { return weights_.View(); }

  // Returns references to the weights that a gradient is to be computed from; costs no copy. With
  // OptimizerConfig::predicts they are w + s (w - w_before) for trained elements, where w_before were the weights
  // before the last step and s is the mean staleness of gradients, at most what all live workers can have in flight:
  // the weights that the gradient will be applied to if the next s steps are like the last (SpecTrain: Chen et al.,
  // "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU Platform", 2018; for Adam,
  // XPipe: Guan et al. 2019). Until the first step, and after Restore(), they are the weights.
  SliceView PulledView() const { return predicted_ ? predicted_->View() : weights_.View(); }
  bool predicts() const { return predicted_.has_value(); }
  // The s of PulledView(); 0 if it is the weights.
  double steps_ahead() const { return steps_ahead_; }

  // Returns references to the average of the weights as it is now; costs no copy. Requires: averages().
  SliceView AveragedView() const { return averaged_->View(); }
  // Returns true if an exponential average of the weights is kept: e = ema e + (1 - ema) w after each step. It begins
  // as the weights do. It includes averaged elements, because statistics of the batch norm belong to the weights they
  // were measured on.
  bool averages() const { return averaged_.has_value(); }

  const ShardExtent& extent() const { return extent_; }
  // Names of the arrays beside the weights: the optimizer's, and kAveragedWeights if averages().
  const std::vector<std::string>& arrays() const { return array_names_; }
  uint64_t samples_applied() const { return samples_applied_; }
  // Learning rate that the next step would use, before lr_scale, if it counted as `batches` batches of one worker.
  double learning_rate(double batches = 1) const { return LearningRate(config_, samples_applied_, batches); }
  // Returns the rate of elements in no group, then that of each group, likewise.
  std::vector<double> learning_rates(double batches = 1) const;
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  // Applies the optimizer to the open step, run after run of `groups_`.
  class Steps;
  // Makes PulledView() the weights as they are.
  void PredictNoChange();
  // Returns how many of the elements from `begin` on are trained.
  size_t TrainedOf(uint64_t begin, size_t elements) const;
  // Returns true if there is anything to compensate, or to learn for compensation.
  bool Compensates(absl::Span<const Contribution> contributions) const;

  const ShardExtent extent_;
  const OptimizerConfig config_;
  Slice weights_;
  Optimizer optimizer_;
  // Arrays of optimizer_, in chunks like those of weights_. Buffers of superseded versions, which only snapshots hold,
  // are not kept for reuse.
  std::vector<Slice> arrays_;
  std::optional<Slice> averaged_;
  std::optional<Slice> predicted_;
  double steps_ahead_ = 0;
  std::vector<std::string> array_names_;
  const std::vector<GroupRun> groups_;
  uint64_t samples_applied_ = 0;
  bool seeded_ = false;
};

// Returns true if all float32 in `bytes` are finite. A float may lie across segments. A length that is not a multiple
// of 4 counts as not finite. No state is carried between calls: call it on whole sub-pushes, or on chunks that begin at
// an element.
bool CheckFinite(const ByteSegments& bytes);

}  // namespace slackline::ps

// The numbers of one shard: its slice of the weights, the optimizer's state, and the step that joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"
#include "common/codec/codec.h"
#include "common/optimizer/averaged_weights.h"
#include "common/optimizer/optimizer.h"
#include "ps/slice.h"

namespace slackline::ps {

// Where a shard lies in the model's flat vector.
struct ShardExtent {
  uint64_t begin = 0;
  uint64_t end = 0;
  // Elements of the shard, from its beginning, that gradients train; those behind them are averaged.
  uint64_t trained = 0;
  // Elements at its end that are frozen: no push has them.
  uint64_t frozen = 0;

  uint64_t size() const { return end - begin; }
  // What a push has: trained and averaged elements.
  uint64_t pushed() const { return size() - frozen; }
};

// Elements of a shard up to `end`, from the range before it on, which a group of the optimizer's settings is for.
struct GroupRun {
  uint64_t end = 0;
  std::optional<uint32_t> group;
};

// A run of elements and how they became bytes. Indices of top-k and blocks of int8 count from its first element.
struct EncodedPiece {
  uint64_t elements = 0;
  codec::Codec codec = {};
  // Checked with codec::Checker.
  ByteSegments bytes;
};

// One push and its share in the step.
struct Contribution {
  // The shard's elements that are pushed, piece after piece.
  std::vector<EncodedPiece> pieces;
  // Weights of a step sum to 1.
  double weight = 1;
  // Norm of the gradient over the whole model, for clipping.
  double gradient_norm = 0;
  // The weights that the gradient was computed from, for delay compensation. Empty where they are not known, or are
  // those of now: it then goes in as it is.
  SliceView reference = {};
};

struct StepArguments {
  // Multiplies the learning rate and decoupled decay (never the gradient).
  double lr_scale = 1;
  // Averaged elements: value += average_rate x (mean of the pushed values - value).
  double average_rate = 1;
  // Samples behind the step; the schedule's time after it.
  uint64_t samples = 0;
  // As how many batches of one worker the step counts, where the learning rate is scaled by them.
  double batches = 1;
  // Mean over the gradients, in versions.
  double staleness = 0;
};

// How far a shard has come.
struct ShardProgress {
  uint64_t samples_applied = 0;
  // Of the optimizer, and the mean staleness of their gradients.
  uint64_t steps = 0;
  double staleness_mean = 0;
};

// All that a shard has learned, as it was at one moment: references, which cost no copy.
//
// Thread-safety: as SliceView's.
struct ShardView {
  SliceView weights;
  // In the order of ShardState::arrays().
  std::vector<SliceView> arrays;
  ShardProgress progress;
};

// Length of an array of that name: that of the shard for the averaged weights, else of what is trained.
inline uint64_t ArrayElements(const ShardExtent& extent, absl::string_view array) {
  return array == kAveragedWeights ? extent.size() : extent.trained;
}

// Reads part of a state that was kept: the values [begin, begin + out.size()) of the weights (array nullopt) or of one
// of the arrays.
using ReadKept = absl::FunctionRef<absl::Status(std::optional<size_t> array, uint64_t begin, absl::Span<float> out)>;

// Thread-safety: none but for View()s and Snapshot()s, which may be read by any thread; the shard's sequencer.
class ShardState {
 public:
  // `chunk_elements`: copy-on-write unit of the slice, whose chunks lie in `storage`.
  ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, uint64_t chunk_elements,
             SliceStorage storage = {})
      : ShardState(extent, optimizer, {}, chunk_elements, std::move(storage)) {}
  // `groups`: runs that follow each other from the shard's first element on; what is behind them has none.
  // Requires: their groups are in `optimizer`.
  ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, std::vector<GroupRun> groups,
             uint64_t chunk_elements, SliceStorage storage = {});

  // Takes initial weights: extent().size() float32.
  //   kInvalidArgument     another length, or a value that is not finite; nothing changed
  //   kFailedPrecondition  it has them already; nothing changed
  absl::Status Seed(const ByteSegments& bytes);
  bool seeded() const { return seeded_; }

  // References to everything as it is now. Steps that are taken while they are held write each chunk that they change
  // into fresh memory, once.
  ShardView Snapshot() const;
  // Takes what a Snapshot() held. `read` gives the values, array after array, each front to back.
  //   kFailedPrecondition  it has weights already
  //   what `read` returns; the shard is then not to be used
  absl::Status Restore(const ShardProgress& progress, ReadKept read);

  // One optimizer step on the weighted mean of the contributions, whose bytes were checked: each is decoded, clipped,
  // then compensated. Averaged elements are neither clipped nor compensated. The sums run in the order given, so that
  // equal inputs give equal bits. Requires: the pieces of every contribution have extent().pushed() elements, and
  // lengths that these can have.
  // `mean_out`, where it is not empty, gets what the step was taken with: the same step with that alone, not clipped,
  // gives the same bits, but for adaptive delay compensation.
  void Apply(absl::Span<const Contribution> contributions, const StepArguments& arguments,
             absl::Span<float> mean_out = {});

  // References to the weights as they are now; costs no copy.
  SliceView View() const { return weights_.View(); }

  // The same of the average of the weights. Requires: averages().
  SliceView AveragedView() const { return averaged_->View(); }
  // Whether an exponential average of the weights is kept, e = ema e + (1 - ema) w after each step, which begins as the
  // weights do. It has averaged elements, too: statistics of the batch norm go with the weights they were measured on.
  bool averages() const { return averaged_.has_value(); }

  const ShardExtent& extent() const { return extent_; }
  // What is kept beside the weights: the optimizer's arrays, and kAveragedWeights where it averages.
  const std::vector<std::string>& arrays() const { return array_names_; }
  uint64_t samples_applied() const { return samples_applied_; }
  // Learning rate that the next step would use if it were of so many batches of one worker, before lr_scale.
  double learning_rate(double batches = 1) const { return LearningRate(config_, samples_applied_, batches); }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  // Takes the open step, run after run of `groups_`.
  class Steps;
  // Whether there is anything to compensate, or to learn for it.
  bool Compensates(absl::Span<const Contribution> contributions) const;

  const ShardExtent extent_;
  const OptimizerConfig config_;
  Slice weights_;
  Optimizer optimizer_;
  // Chunks as those of weights_. Buffers of superseded versions, which only snapshots hold, are not kept for reuse.
  std::vector<Slice> arrays_;  // of optimizer_
  std::optional<Slice> averaged_;
  std::vector<std::string> array_names_;
  const std::vector<GroupRun> groups_;
  uint64_t samples_applied_ = 0;
  bool seeded_ = false;
};

// Whether all float32 in `bytes` are finite. Floats may lie across segments; a length that is not a multiple of 4
// counts as not finite. `carry`-free: call it on whole sub-pushes or on chunks that begin at an element.
bool CheckFinite(const ByteSegments& bytes);

}  // namespace slackline::ps

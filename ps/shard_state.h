// The numbers of one shard: its slice of the weights, the optimizer's state, and the step that joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"
#include "common/codec/codec.h"
#include "common/optimizer/optimizer.h"
#include "ps/slice.h"

namespace slackline::ps {

// Where a shard lies in the model's flat vector.
struct ShardExtent {
  uint64_t begin = 0;
  uint64_t end = 0;
  // Elements of the shard, from its beginning, that gradients train; the rest is averaged.
  uint64_t trained = 0;

  uint64_t size() const { return end - begin; }
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
  // The shard's elements, piece after piece.
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
  // The optimizer's, in the order of Optimizer::arrays(), each of ShardExtent::trained elements.
  std::vector<SliceView> arrays;
  ShardProgress progress;
};

// Reads part of a state that was kept: the values [begin, begin + out.size()) of the weights (array nullopt) or of an
// array of the optimizer.
using ReadKept = absl::FunctionRef<absl::Status(std::optional<size_t> array, uint64_t begin, absl::Span<float> out)>;

// Thread-safety: none but for View()s and Snapshot()s, which may be read by any thread; the shard's sequencer.
class ShardState {
 public:
  // `chunk_elements`: copy-on-write unit of the slice, whose chunks lie in `storage`.
  ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, uint64_t chunk_elements,
             SliceStorage storage = {});

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
  // equal inputs give equal bits. Requires: the pieces of every contribution have extent().size() elements, and lengths
  // that these can have.
  // `mean_out`, where it is not empty, gets what the step was taken with: the same step with that alone, not clipped,
  // gives the same bits, but for adaptive delay compensation.
  void Apply(absl::Span<const Contribution> contributions, const StepArguments& arguments,
             absl::Span<float> mean_out = {});

  // References to the weights as they are now; costs no copy.
  SliceView View() const { return weights_.View(); }

  const ShardExtent& extent() const { return extent_; }
  uint64_t samples_applied() const { return samples_applied_; }
  // Learning rate that the next step would use if it were of so many batches of one worker, before lr_scale.
  double learning_rate(double batches = 1) const { return LearningRate(config_, samples_applied_, batches); }
  const Optimizer& optimizer() const { return optimizer_; }

 private:
  // Whether there is anything to compensate, or to learn for it.
  bool Compensates(absl::Span<const Contribution> contributions) const;

  const ShardExtent extent_;
  const OptimizerConfig config_;
  Slice weights_;
  Optimizer optimizer_;
  // Chunks as those of weights_. Buffers of superseded versions, which only snapshots hold, are not kept for reuse.
  std::vector<Slice> arrays_;  // of optimizer_
  uint64_t samples_applied_ = 0;
  bool seeded_ = false;
};

// Whether all float32 in `bytes` are finite. Floats may lie across segments; a length that is not a multiple of 4
// counts as not finite. `carry`-free: call it on whole sub-pushes or on chunks that begin at an element.
bool CheckFinite(const ByteSegments& bytes);

}  // namespace slackline::ps

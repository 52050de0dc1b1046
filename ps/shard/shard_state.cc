#include "ps/shard/shard_state.h"

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/checker.h"
#include "common/optimizer/aligned_floats.h"
#include "common/optimizer/kernels.h"
#include "ps/shard/gradient_mean.h"

namespace slackline::ps {
namespace {

absl::Status CheckSeed(const ByteSegments& bytes, const ShardExtent& extent) {
  const uint64_t expected = extent.size() * sizeof(float);
  if (bytes.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("initial weights have ", bytes.size(), " bytes, the shard takes ", expected));
  }
  if (!CheckFinite(bytes)) return absl::InvalidArgumentError("initial weights hold a value that is not finite");
  return absl::OkStatus();
}

}  // namespace

ShardState::ShardState(const ShardExtent& extent, const OptimizerConfig& optimizer, std::vector<GroupRun> groups,
                       uint64_t chunk_elements, SliceStorage storage)
    : extent_(extent),
      config_(optimizer),
      weights_({.elements = extent.size(), .chunk_elements = chunk_elements},
               optimizer.predicts ? SliceStorage() : storage),
      optimizer_(optimizer),
      groups_(std::move(groups)) {
  SLACKLINE_CHECK(extent.begin <= extent.end && extent.frozen <= extent.size() && extent.trained <= extent.pushed());
  for (const absl::string_view name : optimizer_.arrays()) {
    arrays_.emplace_back(SliceShape{.elements = extent.trained, .chunk_elements = chunk_elements},
                         SliceStorage{.versions_kept = 0});
    array_names_.emplace_back(name);
  }
  if (optimizer.predicts) {
    predicted_.emplace(SliceShape{.elements = extent.size(), .chunk_elements = chunk_elements}, std::move(storage));
  }
  if (optimizer.ema == 0) return;
  averaged_.emplace(SliceShape{.elements = extent.size(), .chunk_elements = chunk_elements},
                    SliceStorage{.versions_kept = 0});
  array_names_.emplace_back(kAveragedWeights);
}

// A walk from the shard's first trained element to the last.
class ShardState::Steps {
 public:
  Steps(const Optimizer& optimizer, const std::vector<GroupRun>& groups) : optimizer_(optimizer), groups_(groups) {}

  // For elements begin, begin + 1, ...
  void Take(uint64_t begin, absl::Span<const float> gradient, absl::Span<float> weights, BlockOfArrays arrays) {
    while (true) {
      while (run_ < groups_.size() && groups_[run_].end <= begin) ++run_;
      if (run_ == groups_.size()) return optimizer_.StepBlock(gradient, weights, arrays);
      const size_t size = std::min<uint64_t>(weights.size(), groups_[run_].end - begin);
      optimizer_.StepBlock(gradient.first(size), weights.first(size), arrays, groups_[run_].group);
      if (size == weights.size()) return;
      gradient.remove_prefix(size);
      weights.remove_prefix(size);
      for (float*& array : arrays) array = array == nullptr ? nullptr : array + size;
      begin += size;
    }
  }

 private:
  const Optimizer& optimizer_;
  const std::vector<GroupRun>& groups_;
  size_t run_ = 0;
};

absl::Status ShardState::Seed(const ByteSegments& bytes) {
  if (seeded_) return absl::FailedPreconditionError("the shard has its initial weights already");
  if (absl::Status status = CheckSeed(bytes, extent_); !status.ok()) return status;
  ByteReader reader(bytes);
  std::optional<SliceWriter> averaged;
  if (averaged_) averaged.emplace(*averaged_);
  weights_.Update([&](uint64_t /*begin*/, absl::Span<float> values) {
    reader.Read(values.data(), values.size() * sizeof(float));
    if (averaged) std::copy_n(values.data(), values.size(), averaged->Next(values.size()));
  });
  PredictNoChange();
  seeded_ = true;
  return absl::OkStatus();
}

void ShardState::Apply(absl::Span<const Contribution> contributions, const StepArguments& arguments,
                       absl::Span<float> mean_out) {
  SLACKLINE_CHECK(!contributions.empty() && (mean_out.empty() || mean_out.size() == extent_.pushed()));
  for (const Contribution& part : contributions) {
    uint64_t elements = 0;
    for (const EncodedPiece& piece : part.pieces) {
      SLACKLINE_CHECK(codec::IsEncodedLength(piece.codec, piece.elements, piece.bytes.size()));
      elements += piece.elements;
    }
    SLACKLINE_CHECK(elements == extent_.pushed());
    SLACKLINE_CHECK(part.reference.chunks() == 0 || part.reference.elements() == extent_.size());
  }
  std::vector<SliceWriter> writers;
  writers.reserve(arrays_.size());
  for (Slice& array : arrays_) writers.emplace_back(array);
  std::optional<SliceWriter> averaged;
  if (averaged_) averaged.emplace(*averaged_);
  const auto averaged_rate = static_cast<float>(1 - config_.ema);
  std::optional<SliceWriter> predicted;
  if (predicted_) predicted.emplace(*predicted_);
  Steps steps(optimizer_, groups_);
  GradientMean mean(contributions, config_.clip_norm, config_.aggregation);
  const bool compensate = Compensates(contributions);
  const auto average_rate = static_cast<float>(arguments.average_rate);
  SLACKLINE_CHECK(arguments.learning_rates.empty() || arguments.learning_rates.size() == 1 + config_.groups.size());
  std::vector<double> lrs = arguments.learning_rates;
  if (lrs.empty()) lrs.push_back(learning_rate(arguments.batches));
  for (double& lr : lrs) lr *= arguments.lr_scale;
  optimizer_.BeginStep(
      {.lr = lrs.front(), .staleness = arguments.staleness, .group_lrs = absl::MakeConstSpan(lrs).subspan(1)});
  const auto keep = [&](uint64_t begin, absl::Span<const float> values) {
    if (!mean_out.empty()) std::copy_n(values.data(), values.size(), mean_out.data() + begin);
    return values;
  };
  const auto step = [&](uint64_t begin, absl::Span<float> values) {
    const size_t trained = TrainedOf(begin, values.size());
    if (trained > 0) {
      const absl::Span<float> weights = values.first(trained);
      BlockOfArrays arrays = {};
      for (size_t i = 0; i < writers.size(); ++i) arrays[i] = writers[i].Next(trained);
      steps.Take(begin,
                 keep(begin, compensate ? mean.NextCompensated(begin, weights, optimizer_, arrays)
                                        : mean.Next(trained, GradientMean::Clip::kYes)),
                 weights, arrays);
      values.remove_prefix(trained);
    }
    if (values.empty()) return;
    const absl::Span<const float> pushed = keep(begin + trained, mean.Next(values.size(), GradientMean::Clip::kNo));
    Average({.elements = values.size(), .gradient = pushed.data(), .weights = values.data()}, average_rate);
  };
  alignas(kCacheLineBytes) std::array<float, Slice::kBlockElements> before;
  // A worker that was away for long makes the mean large.
  const double in_flight = static_cast<double>(arguments.workers) * config_.window;
  const auto steps_ahead = static_cast<float>(std::clamp(in_flight - 1, 0.0, optimizer_.staleness_mean()));
  if (predicted) steps_ahead_ = steps_ahead;
  weights_.UpdateFirst(extent_.pushed(), [&](uint64_t begin, absl::Span<float> values) {
    if (predicted) absl::c_copy(values, before.begin());
    step(begin, values);
    if (averaged) {
      Average({.elements = values.size(), .gradient = values.data(), .weights = averaged->Next(values.size())},
              averaged_rate);
    }
    if (predicted) {
      float* const out = predicted->Next(values.size());
      const size_t trained = TrainedOf(begin, values.size());
      Extrapolate(trained, steps_ahead, before.data(), values.data(), out);
      absl::c_copy(values.subspan(trained), out + trained);
    }
  });
  if (averaged) averaged->SkipRestOfChunk();
  if (predicted) predicted->SkipRestOfChunk();
  samples_applied_ += arguments.samples;
}

std::vector<double> ShardState::learning_rates(double batches) const {
  const double lr = learning_rate(batches);
  std::vector<double> rates = {lr};
  for (const GroupConfig& group : config_.groups) rates.push_back(lr * group.lr_factor);
  return rates;
}

ShardView ShardState::Snapshot() const {
  ShardView view = {.weights = weights_.View(),
                    .arrays = {},
                    .progress = {.samples_applied = samples_applied_,
                                 .steps = optimizer_.steps(),
                                 .staleness_mean = optimizer_.staleness_mean()}};
  for (const Slice& array : arrays_) view.arrays.push_back(array.View());
  if (averaged_) view.arrays.push_back(averaged_->View());
  return view;
}

absl::Status ShardState::Restore(const ShardProgress& progress, ReadKept read) {
  if (seeded_) return absl::FailedPreconditionError("the shard has weights already");
  absl::Status status;
  const auto fill = [&](Slice& slice, std::optional<size_t> array) {
    slice.Update([&](uint64_t begin, absl::Span<float> values) {
      if (status.ok()) status = read(array, begin, values);
    });
  };
  fill(weights_, std::nullopt);
  for (size_t i = 0; i < arrays_.size(); ++i) fill(arrays_[i], i);
  if (averaged_) fill(*averaged_, arrays_.size());
  if (!status.ok()) return status;
  PredictNoChange();
  samples_applied_ = progress.samples_applied;
  optimizer_.set_steps(progress.steps);
  optimizer_.set_staleness_mean(progress.staleness_mean);
  seeded_ = true;
  return absl::OkStatus();
}

void ShardState::PredictNoChange() {
  steps_ahead_ = 0;
  if (!predicted_) return;
  const SliceView weights = weights_.View();
  predicted_->Update([&](uint64_t begin, absl::Span<float> values) {
    const absl::Span<const float> chunk = weights.chunk(begin / weights.chunk_elements());
    absl::c_copy(chunk.subspan(begin % weights.chunk_elements(), values.size()), values.begin());
  });
}

size_t ShardState::TrainedOf(uint64_t begin, size_t elements) const {
  return std::min<uint64_t>(elements, extent_.trained - std::min(begin, extent_.trained));
}

bool ShardState::Compensates(absl::Span<const Contribution> contributions) const {
  using Kind = DelayCompensationConfig::Kind;
  if (config_.delay_compensation.kind != Kind::kConstant) return config_.delay_compensation.kind == Kind::kAdaptive;
  return absl::c_any_of(contributions, [](const Contribution& part) { return part.reference.chunks() > 0; });
}

bool CheckFinite(const ByteSegments& bytes) { return codec::AllFinite(codec::Encoding::kFp32, bytes); }

}  // namespace slackline::ps

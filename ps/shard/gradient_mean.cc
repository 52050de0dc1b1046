#include "ps/shard/gradient_mean.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/optimizer/kernels.h"

namespace slackline::ps {
namespace {

// Distance between the rows of two pushes. A power of two would put all rows into the same few lines of the cache.
constexpr size_t kRowElements = Slice::kBlockElements + kCacheLineBytes / sizeof(float);

double ClipFactor(double norm, double clip_norm) { return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1; }

}  // namespace

GradientMean::Source::Source(const Contribution& part, double clip_norm)
    : pieces_(part.pieces),
      weight_(static_cast<float>(part.weight)),
      clip_(static_cast<float>(ClipFactor(part.gradient_norm, clip_norm))),
      clipped_weight_(static_cast<float>(part.weight * ClipFactor(part.gradient_norm, clip_norm))),
      reference_(&part.reference) {}

// A block lies within a chunk, and all versions have the same chunks.
const float* GradientMean::Source::Reference(uint64_t begin) const {
  if (reference_->chunks() == 0) return nullptr;
  const uint64_t chunk = reference_->chunk_elements();
  return reference_->chunk(begin / chunk).data() + begin % chunk;
}

void GradientMean::Source::FindPiece() {
  while (left_ == 0) {
    SLACKLINE_CHECK(!pieces_.empty());
    decoder_.emplace(pieces_.front().codec, pieces_.front().bytes);
    left_ = pieces_.front().elements;
    pieces_.remove_prefix(1);
  }
}

const float* GradientMean::Source::Next(absl::Span<float> out) {
  FindPiece();
  if (out.size() <= left_) {
    left_ -= out.size();
    return decoder_->Next(out);
  }
  for (absl::Span<float> rest = out; !rest.empty();) {
    FindPiece();
    const absl::Span<float> part = rest.first(std::min<uint64_t>(rest.size(), left_));
    const float* const values = decoder_->Next(part);
    if (values != part.data()) std::copy_n(values, part.size(), part.data());
    left_ -= part.size();
    rest.remove_prefix(part.size());
  }
  return out.data();
}

GradientMean::GradientMean(absl::Span<const Contribution> contributions, double clip_norm,
                           const AggregationConfig& aggregation)
    : left_out_(aggregation.LeftOut(contributions.size())) {
  sources_.reserve(contributions.size());
  for (const Contribution& part : contributions) sources_.emplace_back(part, clip_norm);
  if (left_out_ == 0) return;
  values_ = AllocateAlignedFloats(contributions.size() * kRowElements);
  for (size_t i = 0; i < contributions.size(); ++i) rows_.push_back(values_.get() + i * kRowElements);
}

absl::Span<const float> GradientMean::Next(size_t elements, Clip clip) {
  SLACKLINE_CHECK(elements <= Slice::kBlockElements);
  if (left_out_ > 0) return NextTrimmed(elements, clip);
  const absl::Span<float> decoded = absl::MakeSpan(buffer_).first(elements);
  const float* first = sources_.front().Next(decoded);
  if (sources_.size() == 1 && sources_.front().factor(clip) == 1) return {first, elements};

  Add(/*first=*/true, sources_.front().factor(clip), elements, first);
  for (Source& source : absl::MakeSpan(sources_).subspan(1)) {
    Add(/*first=*/false, source.factor(clip), elements, source.Next(decoded));
  }
  return {sum_.data(), elements};
}

absl::Span<const float> GradientMean::NextTrimmed(size_t elements, Clip clip) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    float* const row = rows_[i];
    const float* const values = source.Next({row, elements});
    const float clipped = clip == Clip::kYes ? source.clip() : 1;
    if (clipped != 1) {
      Scale(elements, clipped, values, row);
    } else if (values != row) {
      std::memcpy(row, values, elements * sizeof(float));
    }
  }
  TrimmedMean(elements, left_out_, rows_, sum_.data());
  return {sum_.data(), elements};
}

absl::Span<const float> GradientMean::NextCompensated(uint64_t begin, absl::Span<const float> weights,
                                                      const Optimizer& optimizer, const BlockOfArrays& arrays) {
  const size_t elements = weights.size();
  SLACKLINE_CHECK(elements <= Slice::kBlockElements);
  for (Source& source : sources_) {
    optimizer.CompensateBlock({.elements = elements,
                               .gradient = source.Next(absl::MakeSpan(buffer_).first(elements)),
                               .factor = source.clip(),
                               .weights = weights.data(),
                               .weights_then = source.Reference(begin),
                               .out = compensated_.data()},
                              arrays);
    if (sources_.size() == 1 && source.weight() == 1) return {compensated_.data(), elements};
    Add(&source == sources_.data(), source.weight(), elements, compensated_.data());
  }
  return {sum_.data(), elements};
}

void GradientMean::Add(bool first, float factor, size_t elements, const float* values) {
  if (first) {
    Scale(elements, factor, values, sum_.data());
  } else {
    AddScaled(elements, factor, values, sum_.data());
  }
}

}  // namespace slackline::ps

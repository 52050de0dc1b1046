#include "ps/gradient_mean.h"

#include "common/check.h"
#include "ps/kernels.h"

namespace slackline::ps {
namespace {

double ClipFactor(double norm, double clip_norm) { return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1; }

}  // namespace

GradientMean::GradientMean(absl::Span<const Contribution> contributions, double clip_norm) {
  sources_.reserve(contributions.size());
  for (const Contribution& part : contributions) {
    const double clipped = part.weight * ClipFactor(part.gradient_norm, clip_norm);
    sources_.push_back(
        {codec::BlockDecoder(part.codec, part.bytes), static_cast<float>(part.weight), static_cast<float>(clipped)});
  }
}

absl::Span<const float> GradientMean::Next(size_t elements, Clip clip) {
  SLACKLINE_CHECK(elements <= Slice::kBlockElements);
  const absl::Span<float> decoded = absl::MakeSpan(buffer_).first(elements);
  const float* first = sources_.front().decoder.Next(decoded);
  if (sources_.size() == 1 && sources_.front().factor(clip) == 1) return {first, elements};

  Scale(elements, sources_.front().factor(clip), first, sum_.data());
  for (Source& source : absl::MakeSpan(sources_).subspan(1)) {
    AddScaled(elements, source.factor(clip), source.decoder.Next(decoded), sum_.data());
  }
  return {sum_.data(), elements};
}

}  // namespace slackline::ps

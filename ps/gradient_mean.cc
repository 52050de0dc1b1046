#include "ps/gradient_mean.h"

#include <bit>
#include <cstdint>

#include "common/check.h"
#include "ps/kernels.h"

namespace slackline::ps {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian on the wire and used as they are");

double ClipFactor(double norm, double clip_norm) { return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1; }

bool Aligned(const std::byte* bytes) { return reinterpret_cast<uintptr_t>(bytes) % alignof(float) == 0; }

}  // namespace

GradientMean::GradientMean(absl::Span<const Contribution> contributions, double clip_norm) {
  sources_.reserve(contributions.size());
  for (const Contribution& part : contributions) {
    const double clipped = part.weight * ClipFactor(part.gradient_norm, clip_norm);
    sources_.push_back({ByteReader(part.bytes), static_cast<float>(part.weight), static_cast<float>(clipped)});
  }
}

const float* GradientMean::Fetch(Source& source, size_t elements) {
  const size_t size = elements * sizeof(float);
  const std::byte* next = source.reader.contiguous(size);
  if (next != nullptr && Aligned(next)) {
    source.reader.Skip(size);
    return reinterpret_cast<const float*>(next);
  }
  source.reader.Read(buffer_.data(), size);
  return buffer_.data();
}

absl::Span<const float> GradientMean::Next(size_t elements, Clip clip) {
  SLACKLINE_CHECK(elements <= Slice::kBlockElements);
  const float* first = Fetch(sources_.front(), elements);
  if (sources_.size() == 1 && sources_.front().factor(clip) == 1) return {first, elements};

  Scale(elements, sources_.front().factor(clip), first, sum_.data());
  for (Source& source : absl::MakeSpan(sources_).subspan(1)) {
    const float* values = Fetch(source, elements);
    AddScaled(elements, source.factor(clip), values, sum_.data());
  }
  return {sum_.data(), elements};
}

}  // namespace slackline::ps

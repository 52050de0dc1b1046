#include "common/codec/topk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "common/base/check.h"
#include "common/codec/kernels.h"

namespace slackline::codec {
namespace {

constexpr size_t kSamples = 16384;
// Above all zeros and below all else.
constexpr uint32_t kLeast = 1;

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & kMagnitudeBits; }

// A magnitude that probably a few more than `count` of `size` values reach, from a sample of them. Only speed depends
// on it.
template <typename ValueAt>
uint32_t GuessFloor(size_t size, size_t count, const ValueAt& value_at) {
  if (size <= kSamples) return kLeast;
  const size_t stride = size / kSamples;
  std::vector<uint32_t> sample(kSamples);
  for (size_t i = 0; i < kSamples; ++i) sample[i] = Magnitude(value_at(i * stride));
  // Three standard deviations more than the sample's part of `count`.
  const double expected = static_cast<double>(count) / static_cast<double>(size) * kSamples;
  const auto rank = static_cast<size_t>(expected + 3 * std::sqrt(expected) + 8);
  if (rank >= kSamples) return kLeast;
  std::nth_element(sample.begin(), sample.begin() + static_cast<ptrdiff_t>(rank), sample.end(), std::greater<>());
  return std::max(sample[rank], kLeast);
}

// Places of all values whose magnitude is at least `floor`. Calls prepare(begin, elements) before it looks at them.
template <typename Prepare>
std::vector<uint32_t> Candidates(absl::Span<const float> values, uint32_t floor, const Prepare& prepare) {
  std::vector<uint32_t> places;
  std::array<uint32_t, 4096> found;
  for (size_t begin = 0; begin < values.size(); begin += found.size()) {
    const size_t elements = std::min(found.size(), values.size() - begin);
    prepare(begin, elements);
    const size_t count = FindAtLeast(elements, values.data() + begin, floor, found.data());
    for (size_t i = 0; i < count; ++i) places.push_back(static_cast<uint32_t>(begin) + found[i]);
  }
  return places;
}

constexpr auto kPrepared = [](size_t /*begin*/, size_t /*elements*/) {};

// The smaller, the better: larger magnitudes first, then lower places.
uint64_t Rank(absl::Span<const float> values, uint32_t place) {
  return (uint64_t{kMagnitudeBits - Magnitude(values[place])} << 32) | place;
}

// Keeps the `count` best of `places`, in their order.
void KeepBest(absl::Span<const float> values, size_t count, std::vector<uint32_t>& places) {
  std::vector<uint64_t> ranks(places.size());
  std::transform(places.begin(), places.end(), ranks.begin(), [&](uint32_t place) { return Rank(values, place); });
  const auto last = ranks.begin() + static_cast<ptrdiff_t>(count) - 1;
  std::nth_element(ranks.begin(), last, ranks.end());
  const uint64_t worst = *last;
  places.erase(
      std::remove_if(places.begin(), places.end(), [&](uint32_t place) { return Rank(values, place) > worst; }),
      places.end());
}

// The `count` best, given the places of all values from `floor` up.
std::vector<uint32_t> Best(absl::Span<const float> values, size_t count, uint32_t floor, std::vector<uint32_t> places) {
  if (places.size() < count && floor > kLeast) places = Candidates(values, kLeast, kPrepared);
  if (places.empty()) places.push_back(0);
  if (places.size() > count) KeepBest(values, count, places);
  return places;
}

// The same as SelectLargest() of the sums, which are written to `residual` on the way.
std::vector<uint32_t> AddAndSelect(absl::Span<const float> in, float* residual, size_t count) {
  const uint32_t floor = GuessFloor(in.size(), count, [&](size_t i) { return in[i] + residual[i]; });
  const absl::Span<const float> sums(residual, in.size());
  return Best(sums, count, floor, Candidates(sums, floor, [&](size_t begin, size_t elements) {
                Add(elements, in.data() + begin, residual + begin);
              }));
}

}  // namespace

std::vector<uint32_t> SelectLargest(absl::Span<const float> values, size_t count) {
  SLACKLINE_CHECK(count > 0 && count <= values.size() && (values.size() - 1) >> 32 == 0);
  const uint32_t floor = GuessFloor(values.size(), count, [&](size_t i) { return values[i]; });
  return Best(values, count, floor, Candidates(values, floor, kPrepared));
}

size_t EncodeTopK(size_t pairs, absl::Span<const float> in, float* residual, std::byte* out) {
  if (pairs == 0) return 0;
  const float* values = residual == nullptr ? in.data() : residual;
  const std::vector<uint32_t> places =
      residual == nullptr ? SelectLargest(in, pairs) : AddAndSelect(in, residual, pairs);
  std::byte* next = out;
  for (uint32_t place : places) {
    const IndexedValue pair{.index = place, .value = values[place]};
    std::memcpy(next, &pair, sizeof(pair));
    next += sizeof(pair);
    if (residual != nullptr) residual[place] = 0;
  }
  return static_cast<size_t>(next - out);
}

void AddPairs(absl::Span<const std::byte> encoded, absl::Span<float> residual) {
  for (; !encoded.empty(); encoded.remove_prefix(sizeof(IndexedValue))) {
    IndexedValue pair;
    std::memcpy(&pair, encoded.data(), sizeof(pair));
    SLACKLINE_CHECK(pair.index < residual.size());
    residual[pair.index] += pair.value;
  }
}

}  // namespace slackline::codec

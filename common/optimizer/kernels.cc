// The kernels in Highway's vectors. This file is compiled once for each instruction set (foreach_target.h includes it
// again and again); the part under HWY_ONCE picks one of them while the program runs.
//
// Multiplications and additions stay apart (no MulAdd), division and square root are the true ones: each lane does
// what tests/common/optimizer_oracle.cc does, in its order.
#include <algorithm>
#include <cstring>
#include <limits>

#include "common/optimizer/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/kernels.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
// clang-format sorts within blocks only.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace slackline::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Half a cache line, where vectors are longer. By whole lines plain SGD had 0.87 of the rate (Zen 5, arrays of 100 MB),
// and Adam too where arrays begin a line apart within their pages (Zen 4): a load waits for an earlier store that
// agrees with it in the lowest 12 bits. So all loads of a vector come before its first store; else Adam had 0.85.
// Prefetching on top of the CPU's own made plain SGD slower.
constexpr size_t kLanesMax = 8;

// Calls body(tag, i) for each vector of elements i, i + 1, ..., and for each element of the rest.
template <class Body>
HWY_INLINE void ForEachVector(size_t elements, const Body& body) {
  const hn::CappedTag<float, kLanesMax> vector;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(vector);
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) body(vector, i);
  for (; i < elements; ++i) body(one, i);
}

// From any byte: a single lane is loaded as a float, which would have to be aligned.
template <class D>
HWY_INLINE hn::Vec<D> LoadAnywhere(D d, const float* from) {
  if constexpr (hn::MaxLanes(D()) > 1) return hn::LoadU(d, from);
  float value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
}

// g + weight_decay w
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Decayed(D d, float weight_decay, V gradient, V weight) {
  return hn::Add(gradient, hn::Mul(hn::Set(d, weight_decay), weight));
}

// The coefficients are captured by value: the compiler must not think that a store to the weights may change them.

void SgdStep(const SgdCoefficients& coefficients, const Block& block) {
  const float* HWY_RESTRICT g = block.gradient;
  float* HWY_RESTRICT w = block.weights;
  ForEachVector(block.elements, [g, w, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto weight = hn::LoadU(d, w + i);
    const auto gradient = Decayed(d, c.weight_decay, LoadAnywhere(d, g + i), weight);
    hn::StoreU(hn::Sub(weight, hn::Mul(hn::Set(d, c.lr), gradient)), d, w + i);
  });
}

void MomentumStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  const float* HWY_RESTRICT g = block.gradient;
  float* HWY_RESTRICT w = block.weights;
  float* HWY_RESTRICT b = buffer;
  ForEachVector(block.elements, [g, w, b, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto weight = hn::LoadU(d, w + i);
    const auto gradient = Decayed(d, c.weight_decay, LoadAnywhere(d, g + i), weight);
    const auto moment = hn::Add(hn::Mul(hn::Set(d, c.momentum), hn::LoadU(d, b + i)), gradient);
    hn::StoreU(moment, d, b + i);
    hn::StoreU(hn::Sub(weight, hn::Mul(hn::Set(d, c.lr), moment)), d, w + i);
  });
}

void NesterovStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  const float* HWY_RESTRICT g = block.gradient;
  float* HWY_RESTRICT w = block.weights;
  float* HWY_RESTRICT b = buffer;
  ForEachVector(block.elements, [g, w, b, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto momentum = hn::Set(d, c.momentum);
    const auto weight = hn::LoadU(d, w + i);
    const auto gradient = Decayed(d, c.weight_decay, LoadAnywhere(d, g + i), weight);
    const auto moment = hn::Add(hn::Mul(momentum, hn::LoadU(d, b + i)), gradient);
    hn::StoreU(moment, d, b + i);
    const auto ahead = hn::Add(gradient, hn::Mul(momentum, moment));
    hn::StoreU(hn::Sub(weight, hn::Mul(hn::Set(d, c.lr), ahead)), d, w + i);
  });
}

void AdamStep(const AdamCoefficients& coefficients, const Block& block, const AdamMoments& moments) {
  const float* HWY_RESTRICT g = block.gradient;
  float* HWY_RESTRICT w = block.weights;
  float* HWY_RESTRICT m = moments.average;
  float* HWY_RESTRICT v = moments.square_average;
  ForEachVector(block.elements, [g, w, m, v, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto weight = hn::LoadU(d, w + i);
    const auto gradient = Decayed(d, c.weight_decay, LoadAnywhere(d, g + i), weight);
    const auto before = hn::LoadU(d, m + i);
    const auto square_before = hn::LoadU(d, v + i);
    const auto average = hn::Add(before, hn::Mul(hn::Set(d, c.one_minus_beta1), hn::Sub(gradient, before)));
    hn::StoreU(average, d, m + i);
    const auto square = hn::Add(hn::Mul(hn::Set(d, c.beta2), square_before),
                                hn::Mul(hn::Set(d, c.one_minus_beta2), hn::Mul(gradient, gradient)));
    hn::StoreU(square, d, v + i);
    const auto denominator = hn::Add(hn::Sqrt(square), hn::Set(d, c.epsilon));
    const auto step = hn::Div(hn::Mul(hn::Set(d, c.step_size), average), denominator);
    hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, c.keep), weight), step), d, w + i);
  });
}

// g + (lambda g) (g (weights - weights_then))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Compensated(D d, V lambda, V g, const StaleBlock& b, size_t i) {
  const auto change = hn::Sub(hn::LoadU(d, b.weights + i), hn::LoadU(d, b.weights_then + i));
  return hn::Add(g, hn::Mul(hn::Mul(lambda, g), hn::Mul(g, change)));
}

void Compensate(const CompensationCoefficients& coefficients, const StaleBlock& block) {
  ForEachVector(block.elements, [b = block, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::Set(d, b.factor), LoadAnywhere(d, b.gradient + i));
    hn::StoreU(Compensated(d, hn::Set(d, c.lambda), g, b, i), d, b.out + i);
  });
}

void CompensateAdaptive(const CompensationCoefficients& coefficients, const StaleBlock& block, float* square_average) {
  float* HWY_RESTRICT s = square_average;
  ForEachVector(block.elements, [s, b = block, c = coefficients](auto d, size_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::Set(d, b.factor), LoadAnywhere(d, b.gradient + i));
    const auto square = hn::Add(hn::Mul(hn::Set(d, c.mean_square), hn::LoadU(d, s + i)),
                                hn::Mul(hn::Set(d, c.one_minus_mean_square), hn::Mul(g, g)));
    const auto lambda = hn::Div(hn::Set(d, c.lambda), hn::Sqrt(hn::Add(square, hn::Set(d, c.epsilon))));
    const auto compensated = Compensated(d, lambda, g, b, i);
    hn::StoreU(square, d, s + i);
    hn::StoreU(compensated, d, b.out + i);
  });
}

void Average(const Block& mean_and_values, float rate) {
  const float* HWY_RESTRICT mean = mean_and_values.gradient;
  float* HWY_RESTRICT values = mean_and_values.weights;
  ForEachVector(mean_and_values.elements, [mean, values, rate](auto d, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, values + i);
    const auto difference = hn::Sub(LoadAnywhere(d, mean + i), value);
    hn::StoreU(hn::Add(value, hn::Mul(hn::Set(d, rate), difference)), d, values + i);
  });
}

void Extrapolate(size_t elements, float factor, const float* HWY_RESTRICT before, const float* HWY_RESTRICT now,
                 float* HWY_RESTRICT out) {
  ForEachVector(elements, [before, now, out, factor](auto d, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(d, now + i);
    const auto change = hn::Sub(value, hn::LoadU(d, before + i));
    hn::StoreU(hn::Add(value, hn::Mul(hn::Set(d, factor), change)), d, out + i);
  });
}

void TrimmedMean(size_t elements, size_t left_out, absl::Span<float* const> rows, float* HWY_RESTRICT out) {
  ForEachVector(elements, [rows, left_out, out](auto d, size_t i) HWY_ATTR {
    size_t first = 0, last = rows.size() - 1;
    // Takes the least and the most of what is left to its ends, which then are left out.
    for (; first < left_out; ++first, --last) {
      const auto low = hn::LoadU(d, rows[first] + i), high = hn::LoadU(d, rows[last] + i);
      auto least = hn::Min(low, high), most = hn::Max(low, high);
      for (size_t row = first + 1; row < last; ++row) {
        auto value = hn::LoadU(d, rows[row] + i);
        const auto less = hn::Min(least, value);
        value = hn::Max(least, value);
        least = less;
        const auto more = hn::Max(most, value);
        hn::StoreU(hn::Min(most, value), d, rows[row] + i);
        most = more;
      }
    }
    auto sum = hn::LoadU(d, rows[first] + i);
    for (size_t row = first + 1; row <= last; ++row) sum = hn::Add(sum, hn::LoadU(d, rows[row] + i));
    hn::StoreU(hn::Div(sum, hn::Set(d, static_cast<float>(last - first + 1))), d, out + i);
  });
}

void Scale(size_t elements, float factor, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  ForEachVector(elements, [in, out, factor](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, factor), LoadAnywhere(d, in + i)), d, out + i);
  });
}

void AddScaled(size_t elements, float factor, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  ForEachVector(elements, [in, out, factor](auto d, size_t i) HWY_ATTR {
    const auto product = hn::Mul(hn::Set(d, factor), LoadAnywhere(d, in + i));
    hn::StoreU(hn::Add(hn::LoadU(d, out + i), product), d, out + i);
  });
}

const char* KernelTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace slackline::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slackline {

static_assert(std::numeric_limits<float>::is_iec559, "the wire and the kernels speak IEEE float32");

HWY_EXPORT(SgdStep);
HWY_EXPORT(MomentumStep);
HWY_EXPORT(NesterovStep);
HWY_EXPORT(AdamStep);
HWY_EXPORT(Compensate);
HWY_EXPORT(CompensateAdaptive);
HWY_EXPORT(Average);
HWY_EXPORT(Extrapolate);
HWY_EXPORT(TrimmedMean);
HWY_EXPORT(Scale);
HWY_EXPORT(AddScaled);
HWY_EXPORT(KernelTarget);

void SgdStep(const SgdCoefficients& coefficients, const Block& block) {
  HWY_DYNAMIC_DISPATCH(SgdStep)(coefficients, block);
}

void MomentumStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  HWY_DYNAMIC_DISPATCH(MomentumStep)(coefficients, block, buffer);
}

void NesterovStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  HWY_DYNAMIC_DISPATCH(NesterovStep)(coefficients, block, buffer);
}

void AdamStep(const AdamCoefficients& coefficients, const Block& block, const AdamMoments& moments) {
  HWY_DYNAMIC_DISPATCH(AdamStep)(coefficients, block, moments);
}

void Compensate(const CompensationCoefficients& coefficients, const StaleBlock& block) {
  HWY_DYNAMIC_DISPATCH(Compensate)(coefficients, block);
}

void CompensateAdaptive(const CompensationCoefficients& coefficients, const StaleBlock& block, float* square_average) {
  HWY_DYNAMIC_DISPATCH(CompensateAdaptive)(coefficients, block, square_average);
}

void Average(const Block& mean_and_values, float rate) {
  if (rate == 1) {
    std::copy_n(mean_and_values.gradient, mean_and_values.elements, mean_and_values.weights);
  } else {
    HWY_DYNAMIC_DISPATCH(Average)(mean_and_values, rate);
  }
}

void Extrapolate(size_t elements, float factor, const float* before, const float* now, float* out) {
  HWY_DYNAMIC_DISPATCH(Extrapolate)(elements, factor, before, now, out);
}

void TrimmedMean(size_t elements, size_t left_out, absl::Span<float* const> rows, float* out) {
  HWY_DYNAMIC_DISPATCH(TrimmedMean)(elements, left_out, rows, out);
}

void Scale(size_t elements, float factor, const float* in, float* out) {
  HWY_DYNAMIC_DISPATCH(Scale)(elements, factor, in, out);
}

void AddScaled(size_t elements, float factor, const float* in, float* out) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(elements, factor, in, out);
}

const char* KernelTarget() { return HWY_DYNAMIC_DISPATCH(KernelTarget)(); }

}  // namespace slackline
#endif  // HWY_ONCE

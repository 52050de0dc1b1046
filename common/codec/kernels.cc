// The kernels in Highway's vectors. This file is compiled once for each instruction set (foreach_target.h includes it
// again and again); the part under HWY_ONCE picks one of them while the program runs.
//
// Conversions are made of integer operations, not of the CPU's own where it has them: those differ from CPU to CPU
// in rounding, in denormals and at the largest value.
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/codec/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/codec/kernels.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
// clang-format sorts within blocks only.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace slackline::codec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Tags with as many lanes as the tag of floats D.
template <class D>
using Words = hn::RebindToSigned<D>;
template <class D>
using Halves = hn::Rebind<uint16_t, D>;
template <class D>
using Bytes = hn::Rebind<int8_t, D>;

constexpr int32_t kInfinity = 0x7f800000;

// Calls body(tag, i) for each vector of elements i, i + 1, ..., and for each element of the rest.
template <typename T, class Body>
HWY_INLINE void ForEachVector(size_t elements, const Body& body) {
  const hn::ScalableTag<T> vector;
  const hn::CappedTag<T, 1> one;
  const size_t lanes = hn::Lanes(vector);
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) body(vector, i);
  for (; i < elements; ++i) body(one, i);
}

template <class D, class V = hn::Vec<Words<D>>>
HWY_INLINE V Magnitude(D /*d*/, hn::Vec<D> x) {
  const Words<D> words;
  return hn::And(hn::BitCast(words, x), hn::Set(words, int32_t{kMagnitudeBits}));
}

// Puts sign and NaNs to codes of magnitudes.
template <class D, class V = hn::Vec<Words<D>>>
HWY_INLINE V Finished(D /*d*/, hn::Vec<D> x, V magnitude, V code, int32_t nan) {
  const Words<D> words;
  const V sign = hn::And(hn::ShiftRight<16>(hn::BitCast(words, x)), hn::Set(words, 0x8000));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, kInfinity)), hn::Set(words, nan), hn::Or(code, sign));
}

// What finite values are cut to, so that they do not round to infinity; infinity is what it is.
template <class Tag, class V = hn::Vec<Tag>>
HWY_INLINE V Limited(Tag words, V magnitude, V code, int32_t infinity) {
  const V one_if_finite = hn::IfThenElseZero(hn::Lt(magnitude, hn::Set(words, kInfinity)), hn::Set(words, 1));
  return hn::Min(code, hn::Sub(hn::Set(words, infinity), one_if_finite));
}

struct Bf16 {
  // The codes, one in each word.
  template <class D, class V = hn::Vec<Words<D>>>
  static HWY_INLINE V Encode(D d, hn::Vec<D> x) {
    const Words<D> words;
    const V magnitude = Magnitude(d, x);
    const V odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(words, 1));
    // NaNs overflow here; Finished() replaces them.
    const V code = hn::ShiftRight<16>(hn::Add(hn::Add(magnitude, hn::Set(words, 0x7fff)), odd));
    return Finished(d, x, magnitude, Limited(words, magnitude, code, 0x7f80), 0x7fc0);
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<Words<D>> codes) {
    return hn::BitCast(d, hn::ShiftLeft<16>(codes));
  }
};

struct Fp16 {
  template <class D, class V = hn::Vec<Words<D>>>
  static HWY_INLINE V Encode(D d, hn::Vec<D> x) {
    const Words<D> words;
    const V magnitude = Magnitude(d, x);
    // Exponents are 112 smaller; the mantissa loses 13 bits.
    const V odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
    const V rounded = hn::Add(hn::Add(magnitude, hn::Set(words, 0xfff - (112 << 23))), odd);
    const V normal = Limited(words, magnitude, hn::ShiftRight<13>(rounded), 0x7c00);
    // The codes of what is below 2^-14 count 2^-24, the last place of 0.5: the addition rounds.
    const V half = hn::Set(words, std::bit_cast<int32_t>(0.5f));
    const V sum = hn::BitCast(words, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half)));
    const V denormal = hn::Sub(sum, half);
    const V code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, (127 - 14) << 23)), denormal, normal);
    return Finished(d, x, magnitude, code, 0x7e00);
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> Decode(D d, hn::Vec<Words<D>> codes) {
    using V = hn::Vec<Words<D>>;
    const Words<D> words;
    const V magnitude = hn::And(codes, hn::Set(words, 0x7fff));
    const V sign = hn::ShiftLeft<16>(hn::And(codes, hn::Set(words, 0x8000)));
    const V offset = hn::Set(words, 112 << 23);
    const V normal = hn::Add(hn::ShiftLeft<13>(magnitude), offset);
    // Infinities and NaNs have the largest exponent on both sides.
    const auto infinite = hn::Gt(magnitude, hn::Set(words, 0x7bff));
    const V large = hn::Add(normal, hn::IfThenElseZero(infinite, offset));
    // A denormal is what it adds to 2^-14, the value of the least exponent.
    const V least = hn::Set(words, 113 << 23);
    const V above = hn::Add(hn::ShiftLeft<13>(magnitude), least);
    const V small = hn::BitCast(words, hn::Sub(hn::BitCast(d, above), hn::BitCast(d, least)));
    const auto denormal = hn::Lt(magnitude, hn::Set(words, 0x400));
    return hn::BitCast(d, hn::Or(hn::IfThenElse(denormal, small, large), sign));
  }
};

// Codes of two bytes lie at any byte; Highway's unaligned loads and stores take that.
HWY_INLINE const uint16_t* HalvesAt(const std::byte* bytes, size_t i) {
  return reinterpret_cast<const uint16_t*>(bytes + 2 * i);
}
HWY_INLINE uint16_t* HalvesAt(std::byte* bytes, size_t i) { return reinterpret_cast<uint16_t*>(bytes + 2 * i); }

template <class Format>
HWY_INLINE void EncodeHalves(const EncodeBlock& block, std::byte* HWY_RESTRICT out) {
  const float* HWY_RESTRICT in = block.in;
  float* HWY_RESTRICT residual = block.residual;
  if (residual == nullptr) {
    ForEachVector<float>(block.elements, [in, out](auto d, size_t i) HWY_ATTR {
      const Halves<decltype(d)> halves;
      hn::StoreU(hn::DemoteTo(halves, Format::Encode(d, hn::LoadU(d, in + i))), halves, HalvesAt(out, i));
    });
    return;
  }
  ForEachVector<float>(block.elements, [in, residual, out](auto d, size_t i) HWY_ATTR {
    const Halves<decltype(d)> halves;
    const auto x = hn::Add(hn::LoadU(d, in + i), hn::LoadU(d, residual + i));
    const auto codes = Format::Encode(d, x);
    hn::StoreU(hn::DemoteTo(halves, codes), halves, HalvesAt(out, i));
    hn::StoreU(hn::Sub(x, Format::Decode(d, codes)), d, residual + i);
  });
}

template <class Format>
HWY_INLINE void DecodeHalves(size_t elements, const std::byte* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  ForEachVector<float>(elements, [in, out](auto d, size_t i) HWY_ATTR {
    const Halves<decltype(d)> halves;
    const Words<decltype(d)> words;
    const auto codes = hn::PromoteTo(words, hn::LoadU(halves, HalvesAt(in, i)));
    hn::StoreU(Format::Decode(d, codes), d, out + i);
  });
}

void EncodeBf16(const EncodeBlock& block, std::byte* out) { EncodeHalves<Bf16>(block, out); }
void EncodeFp16(const EncodeBlock& block, std::byte* out) { EncodeHalves<Fp16>(block, out); }
void DecodeBf16(size_t elements, const std::byte* in, float* out) { DecodeHalves<Bf16>(elements, in, out); }
void DecodeFp16(size_t elements, const std::byte* in, float* out) { DecodeHalves<Fp16>(elements, in, out); }

// residual = x
HWY_INLINE void TakeResidual(const EncodeBlock& block) {
  const float* HWY_RESTRICT in = block.in;
  float* HWY_RESTRICT residual = block.residual;
  ForEachVector<float>(block.elements, [in, residual](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, in + i), hn::LoadU(d, residual + i)), d, residual + i);
  });
}

// Integers, so that a NaN is the largest.
HWY_INLINE int32_t LargestMagnitude(size_t elements, const float* HWY_RESTRICT values) {
  const hn::ScalableTag<float> d;
  const Words<decltype(d)> words;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(words);
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) largest = hn::Max(largest, Magnitude(d, hn::LoadU(d, values + i)));
  int32_t result = hn::GetLane(hn::MaxOfLanes(words, largest));
  for (; i < elements; ++i) {
    const int32_t magnitude = std::bit_cast<int32_t>(values[i]) & int32_t{kMagnitudeBits};
    result = magnitude > result ? magnitude : result;
  }
  return result;
}

float EncodeInt8(const EncodeBlock& block, std::byte* out) {
  // The second loop finds the block in the nearest cache, so that memory is passed over once.
  float* HWY_RESTRICT residual = block.residual;
  if (residual != nullptr) TakeResidual(block);
  const float* values = residual != nullptr ? residual : block.in;
  const Int8Scale by(std::bit_cast<float>(LargestMagnitude(block.elements, values)));
  if (by.inverse == 0) {
    std::memset(out, 0, block.elements);
    return by.scale;
  }
  ForEachVector<float>(block.elements, [values, residual, out, by](auto d, size_t i) HWY_ATTR {
    const Bytes<decltype(d)> bytes;
    const auto x = hn::LoadU(d, values + i);
    const auto limit = hn::Set(d, 127.0f);
    const auto scaled = hn::Min(hn::Max(hn::Mul(x, hn::Set(d, by.inverse)), hn::Neg(limit)), limit);
    const auto q = hn::NearestInt(scaled);
    hn::StoreU(hn::DemoteTo(bytes, q), bytes, reinterpret_cast<int8_t*>(out + i));
    if (residual == nullptr) return;
    hn::StoreU(hn::Sub(x, hn::Mul(hn::ConvertTo(d, q), hn::Set(d, by.scale))), d, residual + i);
  });
  return by.scale;
}

void DecodeInt8(size_t elements, float scale, const std::byte* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  ForEachVector<float>(elements, [scale, in, out](auto d, size_t i) HWY_ATTR {
    const Bytes<decltype(d)> bytes;
    const Words<decltype(d)> words;
    const auto q = hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(in + i)));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, q), hn::Set(d, scale)), d, out + i);
  });
}

// Whether no value has all bits of `exponent`.
template <typename T>
HWY_INLINE bool AllBelow(size_t elements, const std::byte* bytes, T exponent) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto at = [bytes](size_t i) HWY_ATTR { return reinterpret_cast<const T*>(bytes + i * sizeof(T)); };
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d, at(i)), hn::Set(d, exponent)));
  }
  auto rest = hn::Zero(one);
  for (; i < elements; ++i) rest = hn::Max(rest, hn::And(hn::LoadU(one, at(i)), hn::Set(one, exponent)));
  return hn::AllTrue(d, hn::Lt(largest, hn::Set(d, exponent))) &&
         hn::AllTrue(one, hn::Lt(rest, hn::Set(one, exponent)));
}

bool AllFiniteFp32(size_t elements, const std::byte* values) { return AllBelow<int32_t>(elements, values, kInfinity); }
bool AllFiniteBf16(size_t elements, const std::byte* values) { return AllBelow<int16_t>(elements, values, 0x7f80); }
bool AllFiniteFp16(size_t elements, const std::byte* values) { return AllBelow<int16_t>(elements, values, 0x7c00); }

void Add(size_t elements, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  ForEachVector<float>(elements, [in, out](auto d, size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, out + i), hn::LoadU(d, in + i)), d, out + i);
  });
}

size_t FindAtLeast(size_t elements, const float* HWY_RESTRICT values, uint32_t magnitude, uint32_t* HWY_RESTRICT out) {
  size_t found = 0;
  ForEachVector<float>(elements, [values, magnitude, out, &found](auto d, size_t i) HWY_ATTR {
    const Words<decltype(d)> words;
    const auto least = hn::Set(words, static_cast<int32_t>(magnitude));
    const auto enough = hn::Not(hn::Lt(Magnitude(d, hn::LoadU(d, values + i)), least));
    // Few of many: most vectors have none.
    if (hn::AllFalse(words, enough)) return;
    uint64_t bits = 0;
    uint8_t stored[8 * HWY_MAX_BYTES / sizeof(float)];
    std::memcpy(&bits, stored, hn::StoreMaskBits(words, enough, stored));
    for (; bits != 0; bits &= bits - 1) out[found++] = static_cast<uint32_t>(i) + std::countr_zero(bits);
  });
  return found;
}

const char* KernelTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace slackline::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slackline::codec {

HWY_EXPORT(EncodeBf16);
HWY_EXPORT(EncodeFp16);
HWY_EXPORT(EncodeInt8);
HWY_EXPORT(DecodeBf16);
HWY_EXPORT(DecodeFp16);
HWY_EXPORT(DecodeInt8);
HWY_EXPORT(AllFiniteFp32);
HWY_EXPORT(AllFiniteBf16);
HWY_EXPORT(AllFiniteFp16);
HWY_EXPORT(Add);
HWY_EXPORT(FindAtLeast);
HWY_EXPORT(KernelTarget);

void EncodeBf16(const EncodeBlock& block, std::byte* out) { HWY_DYNAMIC_DISPATCH(EncodeBf16)(block, out); }
void EncodeFp16(const EncodeBlock& block, std::byte* out) { HWY_DYNAMIC_DISPATCH(EncodeFp16)(block, out); }
float EncodeInt8(const EncodeBlock& block, std::byte* out) {
  SLACKLINE_CHECK(block.elements <= kInt8BlockElements);
  return HWY_DYNAMIC_DISPATCH(EncodeInt8)(block, out);
}

void DecodeBf16(size_t elements, const std::byte* in, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeBf16)(elements, in, out);
}
void DecodeFp16(size_t elements, const std::byte* in, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeFp16)(elements, in, out);
}
void DecodeInt8(size_t elements, float scale, const std::byte* in, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeInt8)(elements, scale, in, out);
}

bool AllFiniteFp32(size_t elements, const std::byte* values) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteFp32)(elements, values);
}
bool AllFiniteBf16(size_t elements, const std::byte* values) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteBf16)(elements, values);
}
bool AllFiniteFp16(size_t elements, const std::byte* values) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteFp16)(elements, values);
}

void Add(size_t elements, const float* in, float* out) { HWY_DYNAMIC_DISPATCH(Add)(elements, in, out); }

size_t FindAtLeast(size_t elements, const float* values, uint32_t magnitude, uint32_t* out) {
  return HWY_DYNAMIC_DISPATCH(FindAtLeast)(elements, values, magnitude, out);
}

const char* KernelTarget() { return HWY_DYNAMIC_DISPATCH(KernelTarget)(); }

}  // namespace slackline::codec
#endif  // HWY_ONCE

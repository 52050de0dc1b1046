#include "tests/common/codec_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace slackline::codec::scalar {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & kMagnitudeBits; }
uint16_t Sign(float value) { return std::signbit(value) ? 0x8000 : 0; }

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint16_t Bf16Code(float value) {
  const uint32_t bits = Magnitude(value);
  if (bits > kInfinity) return 0x7fc0;
  if (bits == kInfinity) return Sign(value) | 0x7f80;
  const uint32_t odd = (bits >> 16) & 1;
  return Sign(value) | std::min<uint32_t>((bits + 0x7fff + odd) >> 16, 0x7f7f);
}

float Bf16Value(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }

uint16_t Fp16Code(float value) {
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (std::isinf(value)) return Sign(value) | 0x7c00;
  if (size >= 65504) return Sign(value) | 0x7bff;
  if (size < 0x1p-14f) return Sign(value) | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f));
  const uint32_t bits = Magnitude(value), odd = (bits >> 13) & 1;
  const uint32_t code = (bits - (uint32_t{127 - 15} << 23) + 0xfff + odd) >> 13;
  return Sign(value) | std::min<uint32_t>(code, 0x7bff);
}

float Fp16Value(uint16_t code) {
  const uint32_t exponent = (code >> 10) & 31, mantissa = code & 1023;
  const float sign = (code & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), static_cast<int>(exponent) - 25);
}

float Corrected(const EncodeBlock& block, size_t i) {
  return block.residual == nullptr ? block.in[i] : block.in[i] + block.residual[i];
}

// Two-byte codes.
template <typename Code, typename Value>
void EncodeHalves(const EncodeBlock& block, std::byte* out, Code code_of, Value value_of) {
  for (size_t i = 0; i < block.elements; ++i) {
    const float x = Corrected(block, i);
    const uint16_t code = code_of(x);
    std::memcpy(out + i * sizeof(code), &code, sizeof(code));
    if (block.residual != nullptr) block.residual[i] = x - value_of(code);
  }
}

template <typename T>
bool AllBelow(size_t elements, const std::byte* values, T exponent) {
  for (size_t i = 0; i < elements; ++i) {
    if ((Load<T>(values + i * sizeof(T)) & exponent) == exponent) return false;
  }
  return true;
}

}  // namespace

void EncodeBf16(const EncodeBlock& block, std::byte* out) { EncodeHalves(block, out, Bf16Code, Bf16Value); }
void EncodeFp16(const EncodeBlock& block, std::byte* out) { EncodeHalves(block, out, Fp16Code, Fp16Value); }

float EncodeInt8(const EncodeBlock& block, std::byte* out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < block.elements; ++i) largest = std::max(largest, Magnitude(Corrected(block, i)));
  const Int8Scale by(std::bit_cast<float>(largest));
  for (size_t i = 0; i < block.elements; ++i) {
    const float x = Corrected(block, i);
    const auto q = by.inverse == 0 ? 0 : static_cast<int8_t>(std::nearbyint(std::clamp(x * by.inverse, -127.f, 127.f)));
    out[i] = static_cast<std::byte>(q);
    if (block.residual != nullptr) block.residual[i] = by.inverse == 0 ? x : x - static_cast<float>(q) * by.scale;
  }
  return by.scale;
}

void DecodeBf16(size_t elements, const std::byte* in, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] = Bf16Value(Load<uint16_t>(in + 2 * i));
}

void DecodeFp16(size_t elements, const std::byte* in, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] = Fp16Value(Load<uint16_t>(in + 2 * i));
}

void DecodeInt8(size_t elements, float scale, const std::byte* in, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] = static_cast<float>(Load<int8_t>(in + i)) * scale;
}

bool AllFiniteFp32(size_t elements, const std::byte* values) { return AllBelow<uint32_t>(elements, values, kInfinity); }
bool AllFiniteBf16(size_t elements, const std::byte* values) { return AllBelow<uint16_t>(elements, values, 0x7f80); }
bool AllFiniteFp16(size_t elements, const std::byte* values) { return AllBelow<uint16_t>(elements, values, 0x7c00); }

void Add(size_t elements, const float* in, float* out) {
  for (size_t i = 0; i < elements; ++i) out[i] += in[i];
}

size_t FindAtLeast(size_t elements, const float* values, uint32_t magnitude, uint32_t* out) {
  size_t found = 0;
  for (size_t i = 0; i < elements; ++i) {
    if (Magnitude(values[i]) >= magnitude) out[found++] = static_cast<uint32_t>(i);
  }
  return found;
}

}  // namespace slackline::codec::scalar

// Encodes and decodes one element of each codec. The device's kernels (codec_kernels.cu) and the host's tests compile
// these same lines. tests/common/codec_oracle.h is the oracle of both. This file needs no CUDA, no Abseil and no
// vector unit.
//
// Every float has a result. Compile without contraction (nvcc: --fmad=false): the residual must be rounded twice, as
// the oracle rounds it.
#pragma once

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define SLACKLINE_HOST_DEVICE __host__ __device__
#else
#define SLACKLINE_HOST_DEVICE
#endif

namespace slackline::worker::gpu {

// Sizes on the wire, as in common/codec/codec.h.
inline constexpr uint32_t kBlockElements = 1024;
inline constexpr uint32_t kBlockBytes = 4 + kBlockElements;

SLACKLINE_HOST_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

SLACKLINE_HOST_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Returns the magnitude as an integer with the same order. NaNs are above all other values.
SLACKLINE_HOST_DEVICE inline uint32_t MagnitudeOf(float value) { return BitsOf(value) & 0x7fffffff; }
SLACKLINE_HOST_DEVICE inline uint32_t HalfSignOf(float value) { return (BitsOf(value) >> 16) & 0x8000; }

// --- two-byte codes ------------------------------------------------------------------------------------------------

struct Bf16 {
  SLACKLINE_HOST_DEVICE static uint16_t Code(float value) {
    const uint32_t bits = MagnitudeOf(value);
    if (bits > 0x7f800000) return 0x7fc0;
    if (bits == 0x7f800000) return static_cast<uint16_t>(HalfSignOf(value) | 0x7f80);
    const uint32_t code = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>(HalfSignOf(value) | (code < 0x7f7f ? code : 0x7f7f));
  }
  SLACKLINE_HOST_DEVICE static float Value(uint16_t code) { return FloatOf(static_cast<uint32_t>(code) << 16); }
};

struct Fp16 {
  SLACKLINE_HOST_DEVICE static uint16_t Code(float value) {
    const uint32_t bits = MagnitudeOf(value), sign = HalfSignOf(value);
    if (bits > 0x7f800000) return 0x7e00;
    if (bits == 0x7f800000) return static_cast<uint16_t>(sign | 0x7c00);
    // 2^-14 is the least normal code; below it codes are multiples of 2^-24.
    if (bits < 0x38800000) {
      return static_cast<uint16_t>(sign | static_cast<uint32_t>(nearbyintf(FloatOf(bits) * 16777216.0f)));
    }
    const uint32_t code = (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
    return static_cast<uint16_t>(sign | (code < 0x7bff ? code : 0x7bff));
  }
  SLACKLINE_HOST_DEVICE static float Value(uint16_t code) {
    const uint32_t sign = (code & 0x8000u) << 16, exponent = (code >> 10) & 31, mantissa = code & 1023u;
    if (exponent == 31) return FloatOf(sign | 0x7f800000 | (mantissa != 0 ? 0x400000u : 0u));
    if (exponent == 0) return FloatOf(sign | BitsOf(static_cast<float>(mantissa) * 5.9604644775390625e-8f));
    return FloatOf(sign | (exponent + 112) << 23 | mantissa << 13);
  }
};

// Encodes x. `left` receives the residual for error feedback: x - value of its code.
template <typename Half>
SLACKLINE_HOST_DEVICE inline uint16_t EncodeHalf(float x, float* left) {
  const uint16_t code = Half::Code(x);
  *left = x - Half::Value(code);
  return code;
}

// --- int8 blocks -----------------------------------------------------------------------------------------------------

struct BlockScale {
  float scale = 0;
  // Inverse of `scale`. 0 if all values become 0.
  float inverse = 0;
};

// Returns the scale of a block. `largest` is the largest MagnitudeOf() of its values.
SLACKLINE_HOST_DEVICE inline BlockScale ScaleOf(uint32_t largest) {
  BlockScale by;
  by.scale = FloatOf(largest) / 127;
  if (!(by.scale <= FLT_MAX)) return by;
  if (by.scale > FLT_MAX / 128) by.scale = FLT_MAX / 128;
  if (by.scale < FLT_MIN) by.scale = 0;
  if (by.scale > 0) by.inverse = 1 / by.scale;
  return by;
}

SLACKLINE_HOST_DEVICE inline int8_t EncodeInt8(float x, const BlockScale& by, float* left) {
  *left = x;
  if (by.inverse == 0) return 0;
  const float ratio = x * by.inverse;
  // Computes with the integer code, which has no -0.
  const auto q = static_cast<int8_t>(nearbyintf(ratio < -127 ? -127 : (ratio > 127 ? 127 : ratio)));
  *left = x - static_cast<float>(q) * by.scale;
  return q;
}

SLACKLINE_HOST_DEVICE inline float DecodeInt8(int8_t code, float scale) { return static_cast<float>(code) * scale; }

// --- top-k -----------------------------------------------------------------------------------------------------------

// State of the search for the threshold: the magnitude of the smallest value that is sent. The search finds 8 bits at a
// time, from the highest. Each round takes the values whose higher bits equal `prefix` and builds a histogram of their
// next 8 bits.
struct Selection {
  uint32_t prefix = 0;
  uint32_t bits_known = 0;  // counted from the highest bit
  uint64_t left = 0;        // number of values still to choose among those with this prefix
};

inline constexpr uint32_t kDigits = 256;

// Returns whether a value takes part in the next histogram. With 32 known bits: whether it equals the threshold.
SLACKLINE_HOST_DEVICE inline bool HasPrefix(uint32_t magnitude, const Selection& at) {
  return at.bits_known == 0 || magnitude >> (32 - at.bits_known) == at.prefix;
}
SLACKLINE_HOST_DEVICE inline uint32_t DigitOf(uint32_t magnitude, const Selection& at) {
  return (magnitude >> (24 - at.bits_known)) & (kDigits - 1);
}

// Finds the next 8 bits. Requires: bits_known < 32, and the histogram counts at least `left` values.
SLACKLINE_HOST_DEVICE inline void Narrow(const uint64_t* histogram, Selection* at) {
  uint32_t digit = kDigits - 1;
  while (digit > 0 && histogram[digit] < at->left) at->left -= histogram[digit--];
  at->prefix = at->prefix << 8 | digit;
  at->bits_known += 8;
}

// Returns whether a value is sent. Zeros are not sent. `equals_before` is the number of values at lower indices that
// equal the threshold. Requires: 32 bits are known.
SLACKLINE_HOST_DEVICE inline bool IsSent(uint32_t magnitude, uint64_t equals_before, const Selection& at) {
  if (magnitude == 0) return false;
  return magnitude > at.prefix || (magnitude == at.prefix && equals_before < at.left);
}

}  // namespace slackline::worker::gpu

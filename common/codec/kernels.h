// The codecs' loops over elements, in the CPU's vector instructions. tests/common/codec_oracle.h has the same loops in
// plain C++. Both give equal bits, except for the bits inside a NaN.
//
// Encoded values may lie at any alignment. Arrays of one call must not overlap. Every input has a result: a value that
// cannot be encoded becomes the code of an infinity or NaN, which the receiver refuses.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "common/codec/codec.h"

namespace slackline::codec {

// Input of an encoder: x = in, or, with error feedback, x = in + residual; then residual = x - decoded(code of x).
struct EncodeBlock {
  size_t elements = 0;
  const float* in = nullptr;
  // Residual of the error feedback; null: no feedback.
  float* residual = nullptr;
};

// Encodes with rounding to nearest even. Values too large for a finite code become the largest finite code.
void EncodeBf16(const EncodeBlock& block, std::byte* out);
void EncodeFp16(const EncodeBlock& block, std::byte* out);
// Encodes one block: returns its scale, and writes x / scale, rounded to nearest even, as int8 in [-127, 127]. Values
// too small for a normal scale become zeros. If the block has an infinity or NaN, its values become zeros and its scale
// is not finite.
// Requires: elements <= kInt8BlockElements.
float EncodeInt8(const EncodeBlock& block, std::byte* out);

void DecodeBf16(size_t elements, const std::byte* in, float* out);
void DecodeFp16(size_t elements, const std::byte* in, float* out);
void DecodeInt8(size_t elements, float scale, const std::byte* in, float* out);

bool AllFiniteFp32(size_t elements, const std::byte* values);
bool AllFiniteBf16(size_t elements, const std::byte* values);
bool AllFiniteFp16(size_t elements, const std::byte* values);

// Computes out += in.
void Add(size_t elements, const float* in, float* out);

// Mask for the float's bits without the sign. These bits, as integers, have the order of the magnitudes. NaNs are above
// all other values.
inline constexpr uint32_t kMagnitudeBits = 0x7fffffff;
// Writes the indices of all values whose magnitude is at least `magnitude` to `out`, ascending, and returns their
// number.
// Requires: room for `elements` in `out`.
size_t FindAtLeast(size_t elements, const float* values, uint32_t magnitude, uint32_t* out);

// Returns the instruction set in use, as Highway names it: "AVX2".
const char* KernelTarget();

// Scale of an int8 block whose largest magnitude is `largest`, and the factor that its values are multiplied with.
struct Int8Scale {
  explicit Int8Scale(float largest) {
    scale = largest / 127;
    if (!(scale <= FLT_MAX)) return;
    if (scale > kInt8ScaleMax) scale = kInt8ScaleMax;
    if (scale < FLT_MIN) scale = 0;
    if (scale > 0) inverse = 1 / scale;
  }
  float scale = 0;
  // Factor of the values; 0: all values become 0.
  float inverse = 0;
};

}  // namespace slackline::codec

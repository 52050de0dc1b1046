// The codecs' loops over elements, in the vectors of the CPU at hand. kernels_scalar.h has the same loops in plain
// C++, the oracle: all give equal bits, but for which NaN a NaN is.
//
// Encoded values may lie at any alignment. Arrays of one call must not overlap. Every input has a result: where it
// cannot be encoded the code of an infinity or NaN comes out, which the receiver refuses.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "common/codec/codec.h"

namespace slackline::codec {

// What is encoded: x = in, or, with error feedback, x = in + residual; then residual = x - decoded(code of x).
struct EncodeBlock {
  size_t elements = 0;
  const float* in = nullptr;
  // Null: no feedback.
  float* residual = nullptr;
};

// Rounds to nearest even; what is too large for a finite code becomes the largest finite one.
void EncodeBf16(const EncodeBlock& block, std::byte* out);
void EncodeFp16(const EncodeBlock& block, std::byte* out);
// One block: returns its scale, and writes x / scale, rounded to nearest even, as int8 in [-127, 127]. Values too
// small for a normal scale become zeros, and so do those of a block with an infinity or NaN, whose scale is not finite.
// Requires: elements <= kInt8BlockElements.
float EncodeInt8(const EncodeBlock& block, std::byte* out);

void DecodeBf16(size_t elements, const std::byte* in, float* out);
void DecodeFp16(size_t elements, const std::byte* in, float* out);
void DecodeInt8(size_t elements, float scale, const std::byte* in, float* out);

bool AllFiniteFp32(size_t elements, const std::byte* values);
bool AllFiniteBf16(size_t elements, const std::byte* values);
bool AllFiniteFp16(size_t elements, const std::byte* values);

// out += in
void Add(size_t elements, const float* in, float* out);

// The order of magnitudes as that of integers: the float's bits without the sign. NaNs are above all else.
inline constexpr uint32_t kMagnitudeBits = 0x7fffffff;
// Writes the places of all values whose magnitude is at least `magnitude` to `out`, ascending, and returns how many.
// Requires: room for `elements` in `out`.
size_t FindAtLeast(size_t elements, const float* values, uint32_t magnitude, uint32_t* out);

// The instruction set that was taken, as Highway names it: "AVX2".
const char* KernelTarget();

// Scale of an int8 block whose largest magnitude is `largest`, and what its values are multiplied with.
struct Int8Scale {
  explicit Int8Scale(float largest) {
    scale = largest / 127;
    if (!(scale <= FLT_MAX)) return;
    if (scale > kInt8ScaleMax) scale = kInt8ScaleMax;
    if (scale < FLT_MIN) scale = 0;
    if (scale > 0) inverse = 1 / scale;
  }
  float scale = 0;
  // 0: all values become 0.
  float inverse = 0;
};

}  // namespace slackline::codec

// The codecs of common/codec/codec.h on a GPU: a gradient is encoded where it was computed, so that only wire bytes
// cross to the host; and what else has to be known of it there. Plain types only: this is what nvcc and the host's
// compiler agree on.
//
// All functions put their work on `stream` (a cudaStream_t of the current device) and return at once with what CUDA
// says to that: 0, or a cudaError_t. Pointers are to the device's memory, must not overlap, and stay until the stream
// has come by. Bytes and residuals are those of codec::Encode() and codec::EncodeWithFeedback(), bit for bit (but for
// which NaN a NaN is).
//
// Copies: values -> wire bytes: 1; memory is passed over once (blocks of int8: twice, the second time from a near
// cache; top-k: six times).
#pragma once

#include <cstddef>
#include <cstdint>

namespace slackline::worker::gpu {

struct DeviceValues {
  size_t elements = 0;
  const float* in = nullptr;
  // Null: no feedback.
  float* residual = nullptr;
};

// Require: `out` lies on 4 bytes and has room for codec::EncodedBytesMax().
int EncodeBf16(const DeviceValues& values, std::byte* out, void* stream);
int EncodeFp16(const DeviceValues& values, std::byte* out, void* stream);
int EncodeInt8(const DeviceValues& values, std::byte* out, void* stream);

// What EncodeTopK() needs of memory for itself, for so many elements.
size_t TopKScratchBytes(size_t elements);
// Writes at most `pairs` pairs to `out` and their number to `*written`.
// Requires: 0 < pairs <= elements <= 2^32; `scratch` and `out` lie on 8 bytes.
int EncodeTopK(uint64_t pairs, const DeviceValues& values, void* scratch, std::byte* out, uint64_t* written,
               void* stream);

// Encoded values that come back; of top-k `elements` are pairs.
struct DeviceBytes {
  size_t elements = 0;
  const std::byte* bytes = nullptr;
};

// Add to the residual what these bytes say, as codec::ReturnToResidual(). Require: `bytes` lie on 4 bytes, of top-k
// on 8.
int ReturnBf16(const DeviceBytes& in, float* residual, void* stream);
int ReturnFp16(const DeviceBytes& in, float* residual, void* stream);
int ReturnInt8(const DeviceBytes& in, float* residual, void* stream);
// Requires: no index twice, as EncodeTopK() writes them.
int ReturnTopK(const DeviceBytes& in, float* residual, void* stream);

// How many parts a sum of squares has.
inline constexpr unsigned kSquareSums = 256;
// Writes the parts, in double; they are finite exactly when all values are. The same values give the same parts.
int SumSquares(const float* in, size_t elements, double* parts, void* stream);

}  // namespace slackline::worker::gpu

// The codecs of common/codec/codec.h on a GPU, and the sum of squares of a gradient. A gradient is encoded where it was
// computed, so that only wire bytes cross to the host. This header has plain types only, since both nvcc and the host's
// compiler read it.
//
// All functions enqueue their work on `stream` (a cudaStream_t of the current device) and return CUDA's answer at once:
// 0, or a cudaError_t. Pointers refer to the device's memory. The ranges must not overlap, and must stay valid until
// the stream has executed the work. Bytes and residuals equal those of codec::Encode() and codec::EncodeWithFeedback()
// bit for bit, except for the bits of NaNs.
//
// Copies: values -> wire bytes: 1. Memory is read once; twice for int8 blocks, the second time from a near cache; six
// times for top-k.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slackline::worker::gpu {

struct DeviceValues {
  size_t elements = 0;
  const float* in = nullptr;
  // Residuals of error feedback. Null if there is no feedback.
  float* residual = nullptr;
};

// Encode `values` to `out`. Require: `out` is aligned to 4 bytes and has room for codec::EncodedBytesMax().
int EncodeBf16(const DeviceValues& values, std::byte* out, void* stream);
int EncodeFp16(const DeviceValues& values, std::byte* out, void* stream);
int EncodeInt8(const DeviceValues& values, std::byte* out, void* stream);

// Returns the size of the scratch memory that EncodeTopK() needs for `elements` elements, in bytes.
size_t TopKScratchBytes(size_t elements);
// Writes at most `pairs` pairs to `out`, and their number to `*written`.
// Requires: 0 < pairs <= elements <= 2^32; `scratch` and `out` are aligned to 8 bytes.
int EncodeTopK(uint64_t pairs, const DeviceValues& values, void* scratch, std::byte* out, uint64_t* written,
               void* stream);

// Encoded values that are returned to the residual. For top-k, `elements` is the number of pairs.
struct DeviceBytes {
  size_t elements = 0;
  const std::byte* bytes = nullptr;
};

// Add the encoded values to the residual, as codec::ReturnToResidual() does. Require: `bytes` is aligned to 4 bytes, or
// 8 for top-k.
int ReturnBf16(const DeviceBytes& in, float* residual, void* stream);
int ReturnFp16(const DeviceBytes& in, float* residual, void* stream);
int ReturnInt8(const DeviceBytes& in, float* residual, void* stream);
// Requires: each index occurs once, as EncodeTopK() writes them.
int ReturnTopK(const DeviceBytes& in, float* residual, void* stream);

// Number of parts of a sum of squares.
inline constexpr unsigned kSquareSums = 256;
// Writes the parts of the sum of squares, in double. They are finite exactly if all values are. Equal values give equal
// parts.
int SumSquares(const float* in, size_t elements, double* parts, void* stream);

}  // namespace slackline::worker::gpu

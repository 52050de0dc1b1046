// The kernels of common/codec/kernels.h, one element at a time. They are the simplest form and define the correct
// results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/codec/kernels.h"

namespace slackline::codec::scalar {

void EncodeBf16(const EncodeBlock& block, std::byte* out);
void EncodeFp16(const EncodeBlock& block, std::byte* out);
float EncodeInt8(const EncodeBlock& block, std::byte* out);

void DecodeBf16(size_t elements, const std::byte* in, float* out);
void DecodeFp16(size_t elements, const std::byte* in, float* out);
void DecodeInt8(size_t elements, float scale, const std::byte* in, float* out);

bool AllFiniteFp32(size_t elements, const std::byte* values);
bool AllFiniteBf16(size_t elements, const std::byte* values);
bool AllFiniteFp16(size_t elements, const std::byte* values);

void Add(size_t elements, const float* in, float* out);
size_t FindAtLeast(size_t elements, const float* values, uint32_t magnitude, uint32_t* out);

}  // namespace slackline::codec::scalar

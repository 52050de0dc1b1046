// The kernels' algorithms as plain loops over the kernels' own elements, for tests on a machine without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "worker/cuda/codec_element.h"

namespace slackline::worker::gpu::host {

// Encodes `in` as the wire has it, with error feedback in `residual` unless that is null. All encoders return the
// number of bytes written.
template <typename Half>
size_t EncodeHalves(size_t elements, const float* in, float* residual, std::byte* out) {
  for (size_t i = 0; i < elements; ++i) {
    float left = 0;
    const uint16_t code = EncodeHalf<Half>(residual == nullptr ? in[i] : in[i] + residual[i], &left);
    std::memcpy(out + 2 * i, &code, sizeof(code));
    if (residual != nullptr) residual[i] = left;
  }
  return 2 * elements;
}

inline size_t EncodeInt8Blocks(size_t elements, const float* in, float* residual, std::byte* out) {
  std::byte* next = out;
  for (size_t begin = 0; begin < elements; begin += kBlockElements) {
    const size_t end = begin + kBlockElements < elements ? begin + kBlockElements : elements;
    const auto value_at = [&](size_t i) { return residual == nullptr ? in[i] : in[i] + residual[i]; };
    uint32_t largest = 0;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t magnitude = MagnitudeOf(value_at(i));
      if (magnitude > largest) largest = magnitude;
    }
    const BlockScale by = ScaleOf(largest);
    std::memcpy(next, &by.scale, sizeof(by.scale));
    next += sizeof(by.scale);
    for (size_t i = begin; i < end; ++i) {
      float left = 0;
      *next++ = static_cast<std::byte>(EncodeInt8(value_at(i), by, &left));
      if (residual != nullptr) residual[i] = left;
    }
  }
  return static_cast<size_t>(next - out);
}

// Loops take the place of the device's threads, one a value, and of its sums over blocks of threads.
inline size_t EncodeTopK(uint64_t pairs, size_t elements, const float* in, float* residual, std::byte* out) {
  if (residual != nullptr) {
    for (size_t i = 0; i < elements; ++i) residual[i] = in[i] + residual[i];
  }
  const float* values = residual == nullptr ? in : residual;
  Selection at{.left = pairs};
  while (at.bits_known < 32) {
    std::vector<uint64_t> histogram(kDigits);
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t magnitude = MagnitudeOf(values[i]);
      if (HasPrefix(magnitude, at)) ++histogram[DigitOf(magnitude, at)];
    }
    Narrow(histogram.data(), &at);
  }
  std::byte* next = out;
  uint64_t equals = 0;
  const auto send = [&](uint32_t index) {
    std::memcpy(next, &index, sizeof(index));
    std::memcpy(next + sizeof(index), &values[index], sizeof(float));
    next += sizeof(index) + sizeof(float);
    if (residual != nullptr) residual[index] = 0;
  };
  for (size_t i = 0; i < elements; ++i) {
    const uint32_t magnitude = MagnitudeOf(values[i]);
    if (IsSent(magnitude, equals, at)) send(static_cast<uint32_t>(i));
    if (magnitude == at.prefix) ++equals;
  }
  // Zeros are left out, except for one if there is nothing else.
  if (next == out && elements > 0) send(0);
  return static_cast<size_t>(next - out);
}

// Adds the decoded bytes to `residual`.
template <typename Half>
void ReturnHalves(size_t elements, const std::byte* in, float* residual) {
  for (size_t i = 0; i < elements; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, in + 2 * i, sizeof(code));
    residual[i] += Half::Value(code);
  }
}

inline void ReturnInt8Blocks(size_t elements, const std::byte* in, float* residual) {
  for (size_t i = 0; i < elements; ++i) {
    const std::byte* const block = in + i / kBlockElements * kBlockBytes;
    float scale = 0;
    std::memcpy(&scale, block, sizeof(scale));
    residual[i] += DecodeInt8(static_cast<int8_t>(block[sizeof(scale) + i % kBlockElements]), scale);
  }
}

inline void ReturnTopK(uint64_t pairs, const std::byte* in, float* residual) {
  for (uint64_t i = 0; i < pairs; ++i) {
    uint32_t index = 0;
    float value = 0;
    std::memcpy(&index, in + 8 * i, sizeof(index));
    std::memcpy(&value, in + 8 * i + sizeof(index), sizeof(value));
    residual[index] += value;
  }
}

}  // namespace slackline::worker::gpu::host

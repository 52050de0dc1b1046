// Pixels as 16-bit floats (IEEE binary16, little-endian), at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::worker {

// All of an image's pixels are 0 to 1.
//   kInvalidArgument  names the first that is not: `file`, its row, which pixel, its value
absl::Status CheckHalves(absl::string_view file, uint64_t row, const uint8_t* halves, size_t count);

// Writes out.size() floats, each exactly what its half is.
void ReadHalves(const uint8_t* halves, absl::Span<float> out);

// What 0 to 65535 are, where the latter is 1: the nearest float's nearest half, 2 bytes each.
void WriteHalves(absl::Span<const uint16_t> values, uint8_t* out);

// What is 0 to 1 in units of 2^-24, the smallest half: exact.
inline constexpr uint32_t kHalfUnits = uint32_t{1} << 24;
constexpr uint32_t UnitsOfHalf(uint16_t code) {
  const uint32_t exponent = code >> 10, fraction = code & 0x3ff;
  return exponent == 0 ? fraction : (fraction | 0x400) << (exponent - 1);
}

}  // namespace slackline::worker

// Converts pixels stored as 16-bit floats (IEEE binary16, little-endian), at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::images {

// Checks that all pixels of an image are from 0 to 1.
//   kInvalidArgument  names the first pixel that is not: `file`, its row, its position, its value
absl::Status CheckHalves(absl::string_view file, uint64_t row, const uint8_t* halves, size_t count);

// Writes out.size() floats, each exactly the value of its half.
void ReadHalves(const uint8_t* halves, absl::Span<float> out);

// Writes each value / 65535 as a half, of 2 bytes. The quotient is rounded to a float first, and then to a half.
void WriteHalves(absl::Span<const uint16_t> values, uint8_t* out);

// The value 1 in units of 2^-24, the smallest half. A half from 0 to 1 is exact in these units.
inline constexpr uint32_t kHalfUnits = uint32_t{1} << 24;
constexpr uint32_t UnitsOfHalf(uint16_t code) {
  const uint32_t exponent = code >> 10, fraction = code & 0x3ff;
  return exponent == 0 ? fraction : (fraction | 0x400) << (exponent - 1);
}

}  // namespace slackline::images

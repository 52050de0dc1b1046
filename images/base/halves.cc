#include "images/base/halves.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/codec/kernels.h"

namespace slackline::images {
namespace {

// The code of 1. What is above it is larger, negative, infinite or no number; but for that of -0, which is 0.
constexpr uint16_t kHalfOne = 0x3c00;
constexpr uint16_t kHalfMinusZero = 0x8000;
constexpr float kDeepMax = 65535;

uint16_t HalfAt(const uint8_t* halves, size_t i) {
  uint16_t code;
  std::memcpy(&code, halves + sizeof(code) * i, sizeof(code));
  return code == kHalfMinusZero ? uint16_t{0} : code;
}

}  // namespace

absl::Status CheckHalves(absl::string_view file, uint64_t row, const uint8_t* halves, size_t count) {
  uint16_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, HalfAt(halves, i));
  if (largest <= kHalfOne) return absl::OkStatus();
  size_t at = 0;
  while (HalfAt(halves, at) <= kHalfOne) ++at;
  float value = 0;
  ReadHalves(halves + sizeof(uint16_t) * at, {&value, 1});
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": value ", at, " of row ", row, " is ", value, "; allowed are numbers from 0 to 1"));
}

void ReadHalves(const uint8_t* halves, absl::Span<float> out) {
  codec::DecodeFp16(out.size(), reinterpret_cast<const std::byte*>(halves), out.data());
}

void WriteHalves(absl::Span<const uint16_t> values, uint8_t* out) {
  std::vector<float> floats(values.size());
  for (size_t i = 0; i < values.size(); ++i) floats[i] = static_cast<float>(values[i]) / kDeepMax;
  codec::EncodeFp16({.elements = floats.size(), .in = floats.data()}, reinterpret_cast<std::byte*>(out));
}

}  // namespace slackline::images

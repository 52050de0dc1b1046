// Floats that kernels get wrong first, and comparison of results by their bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace slackline {

// Kinds of values that a test can take: finite ones only, or infinities and NaNs as well.
enum class Hard { kFinite, kAll };

inline float HardFloat(std::mt19937& random, Hard kind) {
  using Limits = std::numeric_limits<float>;
  // Special values, among them ties and borders of the two-byte formats.
  static const std::vector<float> kFinite = {0,
                                             Limits::denorm_min(),
                                             3e-41f,
                                             Limits::min(),
                                             Limits::max(),
                                             1,
                                             1.00390625f,
                                             1.01171875f,
                                             65504,
                                             65519.996f,
                                             65520,
                                             6.1035156e-5f,
                                             6.0975552e-5f,
                                             5.9604645e-8f,
                                             2.9802322e-8f,
                                             2.9802326e-8f,
                                             8.9406967e-8f,
                                             3.3961775e38f,
                                             2049,
                                             2051};
  const uint32_t dice = random();
  float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  if (dice % 4 == 0) value = kFinite[random() % kFinite.size()];
  if (dice % 4 == 1) value = std::normal_distribution<float>(0, 1e-3f)(random);
  if (kind == Hard::kAll && dice % 64 == 2) value = Limits::infinity();
  if (kind == Hard::kFinite && !std::isfinite(value)) value = 1;
  return (dice >> 8) % 2 == 0 ? value : -value;
}

inline std::vector<float> HardFloats(size_t size, uint32_t seed, Hard kind = Hard::kAll) {
  std::mt19937 random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = HardFloat(random, kind);
  return values;
}

// Returns whether two floats have equal bits; any NaN equals any other.
inline bool SameBits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_PRED2(SameBits, got[i], want[i]) << "element " << i;
}

}  // namespace slackline

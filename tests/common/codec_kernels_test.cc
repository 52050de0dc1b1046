// The codecs' vector kernels give the bits of the scalar ones on every instruction set.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "common/codec/kernels.h"
#include "tests/common/codec_oracle.h"
#include "tests/each_target.h"
#include "tests/hard_floats.h"

namespace slackline::codec::codec_kernels_test {
namespace {

using Bytes = std::vector<std::byte>;

// Sizes that fill no vector, one, several, and a block; encoded bytes at even and odd places.
template <typename Test>
void ForSizesAndPlaces(const Test& test) {
  OnEachTarget(KernelTarget, [&] {
    for (size_t size = 0; size <= kInt8BlockElements; size += size < 70 ? 1 : 53) {
      for (size_t place : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << "size " << size << ", encoded at byte " << place);
        ASSERT_NO_FATAL_FAILURE(test(size, place));
      }
    }
  });
}

using Encoder = float (*)(const EncodeBlock&, std::byte*);

template <void (*encode)(const EncodeBlock&, std::byte*)>
float WithoutScale(const EncodeBlock& block, std::byte* out) {
  encode(block, out);
  return 0;
}

// With and without feedback; bytes around the code must stay as they are.
void ExpectEqualCodes(Encoder fast, Encoder oracle, size_t code_bytes, Hard kind) {
  ForSizesAndPlaces([&](size_t size, size_t place) {
    const std::vector<float> in = HardFloats(size, size, kind);
    const std::vector<float> before = HardFloats(size, size + 1, kind);
    for (bool feedback : {false, true}) {
      std::vector<float> residual = before, want_residual = before;
      Bytes codes(size * code_bytes + place + 8, std::byte{0x5a}), want_codes = codes;
      const float scale = fast({size, in.data(), feedback ? residual.data() : nullptr}, codes.data() + place);
      const float want =
          oracle({size, in.data(), feedback ? want_residual.data() : nullptr}, want_codes.data() + place);
      ASSERT_PRED2(SameBits, scale, want);
      ASSERT_EQ(codes, want_codes);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(residual, want_residual));
    }
  });
}

TEST(CodecKernels, Bf16CodesAreTheOracles) {
  ExpectEqualCodes(WithoutScale<EncodeBf16>, WithoutScale<scalar::EncodeBf16>, 2, Hard::kAll);
}

TEST(CodecKernels, Fp16CodesAreTheOracles) {
  ExpectEqualCodes(WithoutScale<EncodeFp16>, WithoutScale<scalar::EncodeFp16>, 2, Hard::kAll);
}

TEST(CodecKernels, Int8CodesAreTheOracles) {
  ExpectEqualCodes(EncodeInt8, scalar::EncodeInt8, 1, Hard::kFinite);
  ExpectEqualCodes(EncodeInt8, scalar::EncodeInt8, 1, Hard::kAll);
}

TEST(CodecKernels, Int8OfManySizesOfValueIsTheOracles) {
  OnEachTarget(KernelTarget, [] {
    // From blocks too small for a scale to blocks with the largest one.
    for (float largest = std::numeric_limits<float>::denorm_min(); std::isfinite(largest); largest *= 7.3f) {
      std::vector<float> in(100);
      for (size_t i = 0; i < in.size(); ++i) in[i] = largest * std::sin(static_cast<float>(i));
      in[50] = -largest;
      Bytes codes(in.size()), want = codes;
      ASSERT_PRED2(SameBits, EncodeInt8({in.size(), in.data()}, codes.data()),
                   scalar::EncodeInt8({in.size(), in.data()}, want.data()));
      ASSERT_EQ(codes, want) << largest;
    }
  });
}

template <typename Decode>
void ExpectEqualValues(const Decode& fast, const Decode& oracle, const Bytes& codes, size_t elements) {
  for (size_t place : {0, 1, 3}) {
    Bytes moved(place);
    moved.insert(moved.end(), codes.begin(), codes.end());
    std::vector<float> got(elements), want(elements);
    fast(elements, moved.data() + place, got.data());
    oracle(elements, moved.data() + place, want.data());
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(got, want));
  }
}

TEST(CodecKernels, AllHalvesDecodeAsTheOraclesDo) {
  Bytes codes(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) std::memcpy(codes.data() + 2 * i, &i, 2);
  OnEachTarget(KernelTarget, [&] {
    for (size_t elements : {65536, 65535, 17, 1}) {
      ASSERT_NO_FATAL_FAILURE(ExpectEqualValues(DecodeBf16, scalar::DecodeBf16, codes, elements));
      ASSERT_NO_FATAL_FAILURE(ExpectEqualValues(DecodeFp16, scalar::DecodeFp16, codes, elements));
    }
  });
}

TEST(CodecKernels, AllHalvesThatAreNumbersEncodeToThemselves) {
  std::vector<float> values(65536);
  Bytes codes(2 * 65536), again = codes;
  for (uint32_t i = 0; i < 65536; ++i) std::memcpy(codes.data() + 2 * i, &i, 2);
  OnEachTarget(KernelTarget, [&] {
    DecodeFp16(values.size(), codes.data(), values.data());
    EncodeFp16({values.size(), values.data()}, again.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const bool same = std::memcmp(&codes[2 * i], &again[2 * i], 2) == 0;
      ASSERT_TRUE(same || std::isnan(values[i])) << i;
    }
  });
}

TEST(CodecKernels, Int8DecodesAsTheOracleDoes) {
  Bytes codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  using Decode = std::function<void(size_t, const std::byte*, float*)>;
  OnEachTarget(KernelTarget, [&] {
    for (float scale : {0.0f, 1e-38f, 0.37f, kInt8ScaleMax}) {
      const Decode fast = [&](size_t n, const std::byte* in, float* out) { DecodeInt8(n, scale, in, out); };
      const Decode oracle = [&](size_t n, const std::byte* in, float* out) { scalar::DecodeInt8(n, scale, in, out); };
      for (size_t n : {256, 255, 5}) ASSERT_NO_FATAL_FAILURE(ExpectEqualValues(fast, oracle, codes, n));
    }
  });
}

// Values that are finite but for one.
template <typename Code>
void ExpectFindsEach(bool (*finite)(size_t, const std::byte*), const std::vector<Code>& bad, Code good) {
  ForSizesAndPlaces([&](size_t size, size_t place) {
    if (size > 200) return;
    Bytes bytes(place + size * sizeof(Code));
    const auto put = [&](size_t i, Code code) { std::memcpy(&bytes[place + i * sizeof(Code)], &code, sizeof(Code)); };
    for (size_t i = 0; i < size; ++i) put(i, good);
    ASSERT_TRUE(finite(size, bytes.data() + place));
    for (size_t i = 0; i < size; ++i) {
      put(i, bad[i % bad.size()]);
      ASSERT_FALSE(finite(size, bytes.data() + place)) << i;
      put(i, good);
    }
  });
}

TEST(CodecKernels, FiniteChecksFindEachBadValue) {
  ExpectFindsEach<uint32_t>(AllFiniteFp32, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}, 0xff7fffff);
  ExpectFindsEach<uint16_t>(AllFiniteBf16, {0x7f80, 0xff80, 0x7fc0, 0xff81}, 0xff7f);
  ExpectFindsEach<uint16_t>(AllFiniteFp16, {0x7c00, 0xfc00, 0x7e00, 0xfc01}, 0xfbff);
  // The oracles too.
  ExpectFindsEach<uint32_t>(scalar::AllFiniteFp32, {0x7f800000, 0xffc00000}, 0xff7fffff);
  ExpectFindsEach<uint16_t>(scalar::AllFiniteBf16, {0x7f80, 0xffc0}, 0xff7f);
  ExpectFindsEach<uint16_t>(scalar::AllFiniteFp16, {0x7c00, 0xfe00}, 0xfbff);
}

TEST(CodecKernels, AddAndFindAreTheOracles) {
  ForSizesAndPlaces([](size_t size, size_t /*place*/) {
    const std::vector<float> in = HardFloats(size, size);
    std::vector<float> sum = HardFloats(size, size + 1), want_sum = sum;
    Add(size, in.data(), sum.data());
    scalar::Add(size, in.data(), want_sum.data());
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(sum, want_sum));
    for (float floor : {0.0f, 1e-40f, 1e-3f, 1e38f, INFINITY}) {
      std::vector<uint32_t> found(size), want(size);
      const auto magnitude = std::bit_cast<uint32_t>(floor);
      found.resize(FindAtLeast(size, in.data(), magnitude, found.data()));
      want.resize(scalar::FindAtLeast(size, in.data(), magnitude, want.data()));
      ASSERT_EQ(found, want) << floor;
    }
  });
}

}  // namespace
}  // namespace slackline::codec::codec_kernels_test

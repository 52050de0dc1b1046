// The elements that the GPU's kernels are made of give the oracle's bits; compiled for the host, from the same lines.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "common/codec/encode.h"
#include "common/codec/kernels.h"
#include "common/codec/topk.h"
#include "tests/common/codec_oracle.h"
#include "tests/hard_floats.h"
#include "tests/worker/gpu_codec_host.h"
#include "worker/cuda/codec_element.h"

namespace slackline::worker::gpu::gpu_codec_test {
namespace {

static_assert(kBlockElements == codec::kInt8BlockElements && kBlockBytes == codec::kInt8BlockBytes);

using Bytes = std::vector<std::byte>;
using Encoder = std::function<size_t(size_t elements, const float* in, float* residual, std::byte* out)>;

Encoder Oracle(const codec::Codec& codec) {
  return [codec](size_t elements, const float* in, float* residual, std::byte* out) {
    const absl::Span<std::byte> room(out, codec::EncodedBytesMax(codec, elements));
    if (residual == nullptr) return codec::Encode(codec, {in, elements}, room);
    return codec::EncodeWithFeedback(codec, {in, elements}, {residual, elements}, room);
  };
}

// Of NaNs among top-k's values only that they are.
void ExpectSameEncoded(const codec::Codec& codec, const Bytes& got, const Bytes& want) {
  if (codec.encoding != codec::Encoding::kTopK) {
    ASSERT_EQ(got, want);
    return;
  }
  ASSERT_EQ(got.size(), want.size());
  for (size_t at = 0; at < got.size(); at += sizeof(codec::IndexedValue)) {
    codec::IndexedValue a, b;
    std::memcpy(&a, &got[at], sizeof(a));
    std::memcpy(&b, &want[at], sizeof(b));
    ASSERT_EQ(a.index, b.index) << "pair " << at / sizeof(a);
    ASSERT_PRED2(SameBits, a.value, b.value) << "pair " << at / sizeof(a);
  }
}

void ExpectEqual(const codec::Codec& codec, const Encoder& fast, const std::vector<float>& in,
                 const std::vector<float>& before) {
  const Encoder oracle = Oracle(codec);
  for (bool feedback : {false, true}) {
    std::vector<float> residual = before, want_residual = before;
    Bytes got(codec::EncodedBytesMax(codec, in.size()), std::byte{0x5a}), want = got;
    got.resize(fast(in.size(), in.data(), feedback ? residual.data() : nullptr, got.data()));
    want.resize(oracle(in.size(), in.data(), feedback ? want_residual.data() : nullptr, want.data()));
    ASSERT_NO_FATAL_FAILURE(ExpectSameEncoded(codec, got, want)) << "feedback " << feedback;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(residual, want_residual)) << "feedback " << feedback;
  }
}

// Sizes around those of blocks of threads, and values that kernels get wrong first.
void ExpectEqualOnHardFloats(const codec::Codec& codec, const Encoder& fast) {
  for (size_t size : {1, 2, 3, 31, 33, 255, 256, 257, 1023, 1024, 1025, 2047, 4099, 70001}) {
    for (Hard kind : {Hard::kFinite, Hard::kAll}) {
      SCOPED_TRACE(testing::Message() << "size " << size);
      const auto seed = static_cast<uint32_t>(size);
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(codec, fast, HardFloats(size, seed, kind), HardFloats(size, seed + 1, kind)));
    }
  }
}

TEST(GpuCodecElements, EveryHighHalfOfAFloatEncodesAsTheOracleDoes) {
  for (uint32_t high = 0; high < 65536; ++high) {
    for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = FloatOf(high << 16 | low);
      uint16_t bf16 = 0, fp16 = 0;
      codec::scalar::EncodeBf16({1, &value}, reinterpret_cast<std::byte*>(&bf16));
      codec::scalar::EncodeFp16({1, &value}, reinterpret_cast<std::byte*>(&fp16));
      ASSERT_EQ(Bf16::Code(value), bf16) << std::hex << high << " " << low;
      ASSERT_EQ(Fp16::Code(value), fp16) << std::hex << high << " " << low;
    }
  }
}

TEST(GpuCodecElements, EveryHalfDecodesAsTheOracleDoes) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<uint16_t>(i);
    float bf16 = 0, fp16 = 0;
    codec::scalar::DecodeBf16(1, reinterpret_cast<const std::byte*>(&code), &bf16);
    codec::scalar::DecodeFp16(1, reinterpret_cast<const std::byte*>(&code), &fp16);
    ASSERT_PRED2(SameBits, Bf16::Value(code), bf16) << i;
    ASSERT_PRED2(SameBits, Fp16::Value(code), fp16) << i;
  }
}

// A residual that gets back what a push said.
TEST(GpuCodecElements, WhatReturnsToAResidualIsTheOracles) {
  for (const char* text : {"bf16", "fp16", "int8", "topk:0.1"}) {
    const codec::Codec codec = codec::ParseCodec(text).value();
    for (size_t size : {1, 1023, 1025, 4099}) {
      SCOPED_TRACE(testing::Message() << text << " of " << size);
      const std::vector<float> in = HardFloats(size, 7, Hard::kFinite);
      std::vector<float> want = HardFloats(size, 8, Hard::kFinite), got = want;
      Bytes bytes(codec::EncodedBytesMax(codec, size));
      bytes.resize(codec::Encode(codec, in, absl::MakeSpan(bytes)));
      codec::ReturnToResidual(codec, bytes, absl::MakeSpan(want));
      if (codec.encoding == codec::Encoding::kBf16) host::ReturnHalves<Bf16>(size, bytes.data(), got.data());
      if (codec.encoding == codec::Encoding::kFp16) host::ReturnHalves<Fp16>(size, bytes.data(), got.data());
      if (codec.encoding == codec::Encoding::kInt8) host::ReturnInt8Blocks(size, bytes.data(), got.data());
      if (codec.encoding == codec::Encoding::kTopK) host::ReturnTopK(bytes.size() / 8, bytes.data(), got.data());
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(got, want));
    }
  }
}

TEST(GpuCodecElements, HalvesAreTheOracles) {
  ExpectEqualOnHardFloats({.encoding = codec::Encoding::kBf16, .fraction = 0}, host::EncodeHalves<Bf16>);
  ExpectEqualOnHardFloats({.encoding = codec::Encoding::kFp16, .fraction = 0}, host::EncodeHalves<Fp16>);
}

TEST(GpuCodecElements, BlocksAreTheOracles) {
  ExpectEqualOnHardFloats({.encoding = codec::Encoding::kInt8, .fraction = 0}, host::EncodeInt8Blocks);
}

TEST(GpuCodecElements, BlocksOfEverySizeOfValueAreTheOracles) {
  for (float largest = std::numeric_limits<float>::denorm_min(); std::isfinite(largest); largest *= 7.3f) {
    std::vector<float> in(1500);
    for (size_t i = 0; i < in.size(); ++i) in[i] = largest * std::sin(static_cast<float>(i));
    in[50] = -largest;
    SCOPED_TRACE(largest);
    ASSERT_NO_FATAL_FAILURE(ExpectEqual({.encoding = codec::Encoding::kInt8, .fraction = 0}, host::EncodeInt8Blocks, in,
                                        HardFloats(1500, 1)));
  }
}

TEST(GpuCodecElements, LargestAreTheOracles) {
  for (double fraction : {1e-9, 0.001, 0.03, 0.5, 1.0}) {
    SCOPED_TRACE(fraction);
    const codec::Codec codec = {.encoding = codec::Encoding::kTopK, .fraction = fraction};
    const Encoder fast = [&](size_t elements, const float* in, float* residual, std::byte* out) {
      return host::EncodeTopK(codec::TopKPairsMax(codec, elements), elements, in, residual, out);
    };
    ExpectEqualOnHardFloats(codec, fast);
    // Nothing but zeros; nothing but equals, of both signs; one value.
    const std::vector<float> zeros(1000), none(1000);
    std::vector<float> equals(1000, 1.5f), one(1000);
    for (size_t i = 0; i < equals.size(); i += 3) equals[i] = -1.5f;
    one[999] = std::numeric_limits<float>::denorm_min();
    for (const std::vector<float>& in : {zeros, equals, one})
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(codec, fast, in, none));
  }
}

}  // namespace
}  // namespace slackline::worker::gpu::gpu_codec_test

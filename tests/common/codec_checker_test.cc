// Encoded bytes that a receiver refuses, wherever messages and segments are cut.
#include "common/codec/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/codec/encode.h"
#include "common/codec/topk.h"

namespace slackline::codec::codec_checker_test {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

const Codec kInt8{.encoding = Encoding::kInt8};
const Codec kTopK{.encoding = Encoding::kTopK, .fraction = 0.5};
const float kInfinity = std::numeric_limits<float>::infinity();

Bytes Encoded(const Codec& codec, const std::vector<float>& in) {
  Bytes bytes(EncodedBytesMax(codec, in.size()));
  bytes.resize(Encode(codec, in, absl::MakeSpan(bytes)));
  return bytes;
}

Bytes Pairs(const std::vector<IndexedValue>& pairs) {
  const auto* first = reinterpret_cast<const std::byte*>(pairs.data());
  return Bytes(first, first + pairs.size() * sizeof(IndexedValue));
}

// All bytes in messages of `message` bytes, each in segments of `segment`.
absl::Status Check(const Codec& codec, uint64_t elements, absl::Span<const std::byte> bytes, size_t message,
                   size_t segment) {
  Checker checker(codec, elements);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(message, bytes.size()))) {
    ByteSegments segments;
    for (absl::Span<const std::byte> left = bytes.subspan(0, message); !left.empty();) {
      segments.Append(left.subspan(0, segment));
      left.remove_prefix(std::min(segment, left.size()));
    }
    if (absl::Status status = checker.Add(segments); !status.ok()) return status;
  }
  return checker.Finish();
}

// However it is cut, the result is the same.
absl::Status CheckAllCuts(const Codec& codec, uint64_t elements, const Bytes& bytes) {
  const absl::Status whole = Check(codec, elements, bytes, bytes.size() + 1, bytes.size() + 1);
  for (size_t items : {1, 2, 3}) {
    for (size_t segment : {1, 2, 3, 5, 1000}) {
      const absl::Status status = Check(codec, elements, bytes, items * Granularity(codec), segment);
      EXPECT_EQ(status.code(), whole.code()) << status << " and " << whole;
    }
  }
  return whole;
}

std::vector<float> Ramp(size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = std::sin(static_cast<float>(i) + 1);
  return values;
}

TEST(Checker, TakesWhatEncodersMake) {
  for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.1"}) {
    const Codec codec = ParseCodec(name).value();
    for (size_t size : {1, 5, 1024, 1025, 2049}) {
      EXPECT_TRUE(CheckAllCuts(codec, size, Encoded(codec, Ramp(size))).ok()) << name << " " << size;
    }
  }
}

TEST(Checker, RefusesValuesThatAreNotFiniteInEveryForm) {
  for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.1"}) {
    const Codec codec = ParseCodec(name).value();
    for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values = Ramp(1500);
      values[1300] = bad;
      const absl::Status status = CheckAllCuts(codec, values.size(), Encoded(codec, values));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " " << bad;
    }
  }
}

TEST(Checker, RefusesEveryOtherLength) {
  for (const char* name : {"fp32", "bf16", "fp16", "int8"}) {
    const Codec codec = ParseCodec(name).value();
    Bytes bytes = Encoded(codec, Ramp(1100));
    bytes.resize(bytes.size() - 1);
    EXPECT_FALSE(CheckAllCuts(codec, 1100, bytes).ok()) << name;
    bytes.resize(bytes.size() + 2);
    EXPECT_FALSE(CheckAllCuts(codec, 1100, bytes).ok()) << name;
  }
  const Bytes pairs = Encoded(kTopK, Ramp(10));
  EXPECT_THAT(std::string(CheckAllCuts(kTopK, 8, pairs).message()), HasSubstr("have 32 at most"));
  EXPECT_FALSE(CheckAllCuts(kTopK, 10, Bytes(12)).ok());
}

TEST(Checker, RefusesMessagesThatEndWithinAnItem) {
  const Bytes bytes = Encoded(kInt8, Ramp(3000));
  EXPECT_TRUE(Check(kInt8, 3000, bytes, 1028, 1028).ok());
  EXPECT_THAT(std::string(Check(kInt8, 3000, bytes, 1024, 1024).message()), HasSubstr("a multiple of 1028"));
}

TEST(Checker, RefusesScalesThatCouldOverflowOrTurnTheSign) {
  const float too_large = std::nextafter(kInt8ScaleMax, kInfinity);
  for (float bad : {-1.0f, -0.0f, too_large, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    Bytes bytes = Encoded(kInt8, Ramp(1500));
    std::memcpy(&bytes[1028], &bad, sizeof(bad));
    EXPECT_THAT(std::string(CheckAllCuts(kInt8, 1500, bytes).message()), HasSubstr("scale of int8 block 1")) << bad;
  }
}

TEST(Checker, RefusesIndicesThatDoNotAscend) {
  EXPECT_TRUE(CheckAllCuts(kTopK, 10, Pairs({{0, 1}, {3, 1}, {9, 1}})).ok());
  EXPECT_TRUE(CheckAllCuts(kTopK, 10, Pairs({})).ok());
  for (const Bytes& bytes : {Pairs({{3, 1}, {3, 1}}), Pairs({{0, 1}, {5, 1}, {4, 1}}), Pairs({{0, 1}, {0, 1}})}) {
    EXPECT_THAT(std::string(CheckAllCuts(kTopK, 10, bytes).message()), HasSubstr("must ascend"));
  }
}

TEST(Checker, RefusesIndicesOutsideTheShard) {
  for (uint32_t index : {10u, 0xffffffffu}) {
    EXPECT_THAT(std::string(CheckAllCuts(kTopK, 10, Pairs({{2, 1}, {index, 1}})).message()),
                HasSubstr("the shard has 10 elements"));
  }
}

TEST(Checker, RandomBytesNeverStopIt) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Bytes bytes(random() % 2100);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.5"}) {
      CheckAllCuts(ParseCodec(name).value(), random() % 2100, bytes).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace slackline::codec::codec_checker_test

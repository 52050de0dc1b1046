// The codecs as their callers use them: lengths, rounding, error feedback, and blocks from segments that are cut
// anywhere.
#include "common/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/codec/block_decoder.h"
#include "common/codec/encode.h"
#include "common/codec/topk.h"
#include "tests/hard_floats.h"

namespace slackline::codec::codec_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

const std::vector<Codec> kAllCodecs = {{.encoding = Encoding::kFp32},
                                       {.encoding = Encoding::kBf16},
                                       {.encoding = Encoding::kFp16},
                                       {.encoding = Encoding::kInt8},
                                       {.encoding = Encoding::kTopK, .fraction = 0.1}};

std::vector<float> Gradient(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.01f);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

Bytes Encoded(const Codec& codec, const std::vector<float>& in) {
  Bytes bytes(EncodedBytesMax(codec, in.size()));
  bytes.resize(Encode(codec, in, absl::MakeSpan(bytes)));
  return bytes;
}

Bytes EncodedWithFeedback(const Codec& codec, const std::vector<float>& in, std::vector<float>& residual) {
  Bytes bytes(EncodedBytesMax(codec, in.size()));
  bytes.resize(EncodeWithFeedback(codec, in, absl::MakeSpan(residual), absl::MakeSpan(bytes)));
  return bytes;
}

// In blocks of `block` elements.
std::vector<float> Decoded(const Codec& codec, const ByteSegments& bytes, size_t elements, size_t block = 512) {
  BlockDecoder decoder(codec, bytes);
  std::vector<float> values(elements);
  for (size_t begin = 0; begin < elements; begin += block) {
    const size_t size = std::min(block, elements - begin);
    const float* next = decoder.Next(absl::MakeSpan(values).subspan(begin, size));
    if (next != values.data() + begin) std::memcpy(values.data() + begin, next, size * sizeof(float));
  }
  return values;
}

std::vector<float> Decoded(const Codec& codec, const Bytes& bytes, size_t elements) {
  return Decoded(codec, ByteSegments(bytes), elements);
}

TEST(Codec, NamesReadBackAsTheyAreWritten) {
  for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.01", "topk:1", "topk:1e-05", "topk:0.0012345678"}) {
    const absl::StatusOr<Codec> codec = ParseCodec(name);
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ(ToString(*codec), name);
  }
}

TEST(Codec, OtherNamesAreRefusedWithWhatIsAllowed) {
  for (const char* name : {"", "fp64", "topk", "topk:", "topk:0", "topk:1.01", "topk:-0.1", "topk:nan", "topk:0.1x"}) {
    const absl::Status status = ParseCodec(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("allowed are fp32, bf16, fp16, int8"));
  }
}

TEST(Codec, LengthsAreThoseOfTheGrammar) {
  const Codec int8{.encoding = Encoding::kInt8}, topk{.encoding = Encoding::kTopK, .fraction = 0.01};
  EXPECT_EQ(EncodedBytesMax({}, 10), 40u);
  EXPECT_EQ(EncodedBytesMax({.encoding = Encoding::kBf16}, 10), 20u);
  EXPECT_EQ(EncodedBytesMax(int8, 1024), 1028u);
  EXPECT_EQ(EncodedBytesMax(int8, 1025), 1033u);
  EXPECT_EQ(EncodedBytesMax(topk, 1), 8u);
  EXPECT_EQ(EncodedBytesMax(topk, 101), 16u);
  EXPECT_TRUE(IsEncodedLength(topk, 101, 8));
  EXPECT_FALSE(IsEncodedLength(topk, 101, 24));
  EXPECT_FALSE(IsEncodedLength(topk, 101, 12));
  EXPECT_FALSE(IsEncodedLength(int8, 1025, 1028));
  for (const Codec& codec : kAllCodecs) EXPECT_EQ(EncodedBytesMax(codec, 0), 0u) << ToString(codec);
}

TEST(Codec, HalvesRoundToNearestEvenAndSaturate) {
  const float all[] = {1.00390625f, 1.01171875f, -3.4e38f, 2049, 2051, 65520, -1e30f, 0x1p-25f, 0x1.8p-24f};
  const std::vector<float> in(std::begin(all), std::end(all));
  const Codec bf16{.encoding = Encoding::kBf16}, fp16{.encoding = Encoding::kFp16};
  EXPECT_THAT(Decoded(bf16, Encoded(bf16, in), in.size()),
              ElementsAre(1, 1.015625f, -0x1.fep127f, 2048, 2048, 65536, testing::_, 0x1p-25f, 0x1.8p-24f));
  EXPECT_THAT(Decoded(fp16, Encoded(fp16, in), in.size()),
              ElementsAre(1.00390625f, 1.01171875f, -65504, 2048, 2052, 65504, -65504, 0, 0x1p-23f));
}

TEST(Codec, Int8IsWithinHalfAStepOfItsBlock) {
  const Codec int8{.encoding = Encoding::kInt8};
  std::vector<float> in = Gradient(3 * kInt8BlockElements + 5, 1);
  for (size_t i = 0; i < kInt8BlockElements; ++i) in[i] *= 1000;
  const std::vector<float> out = Decoded(int8, Encoded(int8, in), in.size());
  for (size_t block = 0; block < in.size(); block += kInt8BlockElements) {
    const size_t end = std::min(block + kInt8BlockElements, in.size());
    float largest = 0;
    for (size_t i = block; i < end; ++i) largest = std::max(largest, std::fabs(in[i]));
    for (size_t i = block; i < end; ++i) ASSERT_NEAR(out[i], in[i], largest / 127 * 0.501f) << i;
  }
}

TEST(Codec, EncodedBytesDecodeAlikeHoweverTheyAreCut) {
  std::mt19937 random(7);
  for (const Codec& codec : kAllCodecs) {
    const std::vector<float> in = Gradient(2 * kInt8BlockElements + 333, 2);
    const Bytes bytes = Encoded(codec, in);
    const std::vector<float> whole = Decoded(codec, bytes, in.size());
    for (size_t piece_max : {1, 2, 3, 7, 64, 2000}) {
      ByteSegments cut;
      for (absl::Span<const std::byte> left = bytes; !left.empty();) {
        const size_t piece = std::min<size_t>(left.size(), 1 + random() % piece_max);
        cut.Append(left.first(piece));
        left.remove_prefix(piece);
      }
      for (size_t block : {1, 77, 512, 5000}) {
        SCOPED_TRACE(testing::Message() << ToString(codec) << ", pieces to " << piece_max << ", blocks of " << block);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Decoded(codec, cut, in.size(), block), whole));
      }
    }
  }
}

TEST(Codec, AlignedFloatsAreUsedWhereTheyLie) {
  const std::vector<float> in = Gradient(600, 3);
  const ByteSegments bytes({reinterpret_cast<const std::byte*>(in.data()), in.size() * sizeof(float)});
  BlockDecoder decoder({}, bytes);
  std::vector<float> scratch(512);
  EXPECT_EQ(decoder.Next(absl::MakeSpan(scratch)), in.data());
  EXPECT_EQ(decoder.Next(absl::MakeSpan(scratch).first(88)), in.data() + 512);
}

TEST(ErrorFeedback, ConservesTheSum) {
  for (const Codec& codec : kAllCodecs) {
    const size_t size = kInt8BlockElements + 100;
    std::vector<float> residual(size, 0);
    std::vector<double> went_in(size, 0), came_out(size, 0);
    for (uint32_t step = 0; step < 50; ++step) {
      const std::vector<float> in = Gradient(size, 100 + step);
      const std::vector<float> out = Decoded(codec, EncodedWithFeedback(codec, in, residual), size);
      for (size_t i = 0; i < size; ++i) {
        went_in[i] += in[i];
        came_out[i] += out[i];
      }
    }
    // A step may lose the rounding of in + residual, which is below 1: 2^-24 at most. Top-k holds back 10 steps' sum.
    for (size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(came_out[i] + residual[i], went_in[i], 50 * 0x1p-24) << ToString(codec) << " element " << i;
    }
  }
}

TEST(ErrorFeedback, OneStepConservesEachValueExactly) {
  for (const Codec& codec : kAllCodecs) {
    const std::vector<float> in = HardFloats(3000, 4, Hard::kFinite);
    std::vector<float> x = in;
    // Within what a 16-bit float can say, so that nothing saturates.
    for (float& value : x) value = std::clamp(value, -60000.0f, 60000.0f);
    std::vector<float> residual(x.size(), 0);
    const std::vector<float> out = Decoded(codec, EncodedWithFeedback(codec, x, residual), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(static_cast<double>(out[i]) + static_cast<double>(residual[i]), x[i]) << ToString(codec) << " " << i;
    }
  }
}

TEST(ErrorFeedback, DiscardedPushReturnsToTheResidual) {
  for (const Codec& codec : kAllCodecs) {
    const std::vector<float> in = Gradient(2500, 5), before = Gradient(2500, 6);
    std::vector<float> residual = before;
    const Bytes bytes = EncodedWithFeedback(codec, in, residual);
    ReturnToResidual(codec, bytes, absl::MakeSpan(residual));
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(residual[i], in[i] + before[i]) << ToString(codec) << " " << i;
  }
}

TEST(TopK, SendsTheLargestOfEqualsTheFirst) {
  EXPECT_THAT(SelectLargest({1, -5, 2, 5, 5, 0}, 2), ElementsAre(1, 3));
  EXPECT_THAT(SelectLargest({1, -5, 2, 5, 5, 0}, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(SelectLargest({3, 3, 3, 3}, 3), ElementsAre(0, 1, 2));
}

TEST(TopK, LeavesZerosOutButForOne) {
  EXPECT_THAT(SelectLargest({0, 0, 1, 0}, 3), ElementsAre(2));
  EXPECT_THAT(SelectLargest({0, -0.0f, 0}, 2), ElementsAre(0));
}

// However well its sample guesses.
TEST(TopK, AgreesWithSortingWhereSamplesMislead) {
  const size_t size = 200'000, count = 2000;
  std::vector<std::vector<float>> cases = {Gradient(size, 8), std::vector<float>(size, 0.5f), Gradient(size, 9)};
  // The places that the sample sees are all large.
  for (size_t i = 0; i < size; i += size / 16384) cases[2][i] += 1;
  for (const std::vector<float>& values : cases) {
    std::vector<uint32_t> want(size);
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(),
                     [&](uint32_t a, uint32_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
    want.resize(count);
    std::sort(want.begin(), want.end());
    EXPECT_EQ(SelectLargest(values, count), want);
  }
}

TEST(TopK, WhereTheSampleSeesFewTheRestIsFound) {
  std::vector<float> values(200'000, 0);
  for (size_t i = 0; i < values.size(); i += values.size() / 16384) values[i] = 2;
  // Only 100 values beside those, all smaller than the floor that the sample gives.
  for (size_t i = 1; i <= 1200; i += 12) values[i] = 1;
  const size_t nonzero = values.size() - static_cast<size_t>(std::count(values.begin(), values.end(), 0.0f));
  EXPECT_EQ(SelectLargest(values, nonzero).size(), nonzero);
}

}  // namespace
}  // namespace slackline::codec::codec_test

// Cutting and encoding pushes, without a network.
#include "worker/client/push_encoder.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/codec/encode.h"

namespace slackline::worker::push_encoder_test {
namespace {

using Push = PushEncoder::Push;

CodecRun RunOf(uint64_t elements, const char* codec, bool error_feedback = true) {
  return {elements, codec::ParseCodec(codec).value(), error_feedback};
}

std::vector<float> Noise(size_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gradient;
  std::vector<float> values(elements);
  for (float& value : values) value = gradient(random);
  return values;
}

// Encodes all of the push; what the receiver makes of it.
std::vector<float> EncodeAll(PushEncoder& encoder, Push& push, size_t elements) {
  std::vector<float> values(elements);
  for (size_t i = 0; i < push.chunks().size(); ++i) {
    const Push::Chunk& chunk = push.chunks()[i];
    const absl::Span<float> part = absl::MakeSpan(values).subspan(chunk.offset, chunk.elements);
    if (!chunk.run.lossy()) {
      std::copy_n(push.values(i).data(), part.size(), part.data());
      continue;
    }
    encoder.Encode(push, i);
    codec::ReturnToResidual(chunk.run.codec, {chunk.bytes.get(), chunk.size}, part);
  }
  return values;
}

TEST(PushEncoder, ChunksCoverTheShardAndNoneIsTooLongOrMixed) {
  const uint64_t elements = 3'000'000;
  const std::vector<CodecRun> runs = {RunOf(10, "fp32"),        RunOf(500'000, "bf16"), RunOf(7, "fp32"),
                                      RunOf(1'200'000, "int8"), RunOf(999, "fp16"),     RunOf(700'000, "topk:0.01"),
                                      RunOf(500'000, "topk:1")};
  const PushEncoder encoder(runs);
  const std::vector<float> model(elements);
  for (const uint64_t chunk_bytes : {uint64_t{codec::kInt8BlockBytes}, uint64_t{4096}, uint64_t{1} << 20}) {
    // Shards that begin and end anywhere; the last has what no run covers.
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 5}, {5, 500'100}, {500'100, 500'101}, {500'101, 2'000'000}, {2'000'000, elements}}) {
      const Push push = encoder.Cut(begin, absl::MakeSpan(model).subspan(begin, end - begin), chunk_bytes);
      uint64_t next = 0;
      for (const Push::Chunk& chunk : push.chunks()) {
        ASSERT_EQ(chunk.offset, next);
        ASSERT_GT(chunk.elements, 0);
        ASSERT_LE(chunk.elements, PushEncoder::kChunkElementsMax);
        ASSERT_LE(codec::EncodedBytesMax(chunk.run.codec, chunk.elements), chunk_bytes);
        next += chunk.elements;
        // All of it in one run.
        uint64_t run_begin = 0;
        codec::Codec expected;
        for (const CodecRun& run : runs) {
          const uint64_t first = begin + chunk.offset, run_end = run_begin + run.elements;
          if (first >= run_begin && first < run_end) {
            expected = run.codec;
            ASSERT_LE(first + chunk.elements, run_end);
          }
          run_begin = run_end;
        }
        ASSERT_EQ(chunk.run.codec, expected);
      }
      ASSERT_EQ(next, end - begin);
    }
  }
}

TEST(PushEncoder, ChunkIsEncodedOnce) {
  PushEncoder encoder({RunOf(5000, "int8")});
  std::vector<float> gradient = Noise(5000, 1);
  Push push = encoder.Cut(0, gradient, 4096);
  const std::byte* const bytes = encoder.Encode(push, 1).bytes.get();
  const std::vector<float> residual(encoder.residual().begin(), encoder.residual().end());
  gradient = Noise(5000, 2);
  EXPECT_EQ(encoder.Encode(push, 1).bytes.get(), bytes);
  EXPECT_EQ(std::vector<float>(encoder.residual().begin(), encoder.residual().end()), residual);
}

class ConservationTest : public testing::TestWithParam<const char*> {};

// Two shards; some pushes are discarded, whole or before all of them was encoded.
TEST_P(ConservationTest, AppliedAndResidualSumToAllGradients) {
  constexpr size_t kElements = 6000, kBorder = 2500;
  PushEncoder encoder({RunOf(kElements, GetParam())});
  std::vector<double> gradients(kElements), applied(kElements);
  for (uint32_t step = 0; step < 30; ++step) {
    const std::vector<float> gradient = Noise(kElements, step);
    for (size_t i = 0; i < kElements; ++i) gradients[i] += gradient[i];
    for (const auto& [begin, end] : {std::pair(size_t{0}, kBorder), std::pair(kBorder, kElements)}) {
      Push push = encoder.Cut(begin, absl::MakeSpan(gradient).subspan(begin, end - begin), 2000);
      const bool discarded = step % 5 == 3;
      if (discarded && step % 2 == 0) {
        encoder.Encode(push, 0);  // but not the others, where there are any
        encoder.Return(push);
        continue;
      }
      const std::vector<float> values = EncodeAll(encoder, push, end - begin);
      if (discarded) encoder.Return(push);
      for (size_t i = 0; !discarded && i < values.size(); ++i) applied[begin + i] += values[i];
    }
  }
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(applied[i] + encoder.residual()[i], gradients[i], 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, ConservationTest, testing::Values("bf16", "fp16", "int8", "topk:0.03"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4); });

TEST(PushEncoder, WithoutFeedbackNothingIsKept) {
  PushEncoder encoder({RunOf(3000, "int8", /*error_feedback=*/false)});
  const std::vector<float> gradient = Noise(3000, 1);
  Push push = encoder.Cut(0, gradient, 4096);
  EncodeAll(encoder, push, 3000);
  encoder.Return(push);
  EXPECT_TRUE(encoder.residual().empty());
}

}  // namespace
}  // namespace slackline::worker::push_encoder_test

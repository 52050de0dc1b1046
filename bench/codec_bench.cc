// What encoding, checking and decoding cost beside reading and copying the same values. Rates count the float32 bytes
// of the values, so that all codecs compare.
#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/ratio_reporter.h"
#include "common/base/byte_segments.h"
#include "common/codec/block_decoder.h"
#include "common/codec/checker.h"
#include "common/codec/encode.h"
#include "common/codec/kernels.h"

namespace slackline::codec {
namespace {

// One shard of eight of 100 MB.
constexpr size_t kElements = 25'000'000 / 8;

// Of many sizes, as gradients are.
std::vector<float> Gradient() {
  std::vector<float> values(kElements);
  uint32_t random = 1;
  for (float& value : values) {
    random = random * 1664525 + 1013904223;
    value = 1e-3f * std::sin(static_cast<float>(random >> 8));
    value *= value * value;
  }
  return values;
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kElements * sizeof(float)));
}

void Copy(benchmark::State& state) {
  const std::vector<float> from = Gradient();
  std::vector<float> to(kElements);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kElements * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

void EncodeAll(benchmark::State& state, const Codec& codec, bool feedback) {
  const std::vector<float> gradient = Gradient();
  std::vector<float> residual(kElements);
  std::vector<std::byte> out(EncodedBytesMax(codec, kElements));
  for (auto _ : state) {
    benchmark::DoNotOptimize(feedback
                                 ? EncodeWithFeedback(codec, gradient, absl::MakeSpan(residual), absl::MakeSpan(out))
                                 : Encode(codec, gradient, absl::MakeSpan(out)));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

struct EncodedGradient {
  explicit EncodedGradient(const Codec& codec) : bytes(EncodedBytesMax(codec, kElements)) {
    bytes.resize(Encode(codec, Gradient(), absl::MakeSpan(bytes)));
  }
  std::vector<std::byte> bytes;
};

void CheckAll(benchmark::State& state, const Codec& codec) {
  const EncodedGradient encoded(codec);
  const ByteSegments segments(encoded.bytes);
  for (auto _ : state) {
    Checker checker(codec, kElements);
    benchmark::DoNotOptimize(checker.Add(segments).ok() && checker.Finish().ok());
  }
  SetBytes(state);
}

// Into one block, as the step reads it.
void DecodeAll(benchmark::State& state, const Codec& codec) {
  const EncodedGradient encoded(codec);
  const ByteSegments segments(encoded.bytes);
  std::array<float, 512> block;
  for (auto _ : state) {
    BlockDecoder decoder(codec, segments);
    for (size_t left = kElements; left > 0; left -= std::min(left, block.size())) {
      benchmark::DoNotOptimize(decoder.Next(absl::MakeSpan(block).first(std::min(left, block.size()))));
    }
  }
  SetBytes(state);
}

const char* const kCodecs[] = {"fp32", "bf16", "fp16", "int8", "topk:0.01"};

void RegisterAll() {
  bench::RegisterLoop("copy", Copy);
  for (const char* name : kCodecs) {
    const Codec codec = ParseCodec(name).value();
    bench::RegisterLoop(absl::StrCat("encode_", name).c_str(), EncodeAll, codec, false);
    bench::RegisterLoop(absl::StrCat("encode_", name, "_feedback").c_str(), EncodeAll, codec, true);
    bench::RegisterLoop(absl::StrCat("check_", name).c_str(), CheckAll, codec);
    bench::RegisterLoop(absl::StrCat("decode_", name).c_str(), DecodeAll, codec);
  }
}

bench::RatioReporter Reporter() {
  std::vector<std::pair<std::string, std::string>> ratios;
  for (const char* name : kCodecs) {
    ratios.emplace_back(absl::StrCat("encode_", name), "copy");
    ratios.emplace_back(absl::StrCat("encode_", name, "_feedback"), "copy");
  }
  return bench::RatioReporter(ratios);
}

}  // namespace
}  // namespace slackline::codec

int main(int argc, char** argv) {
  slackline::codec::RegisterAll();
  slackline::bench::RatioReporter reporter = slackline::codec::Reporter();
  std::printf("kernels for %s\n", slackline::codec::KernelTarget());
  return slackline::bench::RunInterleaved(argc, argv, reporter);
}

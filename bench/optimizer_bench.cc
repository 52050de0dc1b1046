// The optimizer's kernels beside what this machine's memory gives in the same run, and copy-on-write beside a
// snapshot that is copied under a mutex.
//
// Bytes are those that the loop names (STREAM's way: no write-allocate): 12 an element for the triad and plain SGD.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "bench/support/ratio_reporter.h"
#include "common/byte_segments.h"
#include "common/codec/block_decoder.h"
#include "common/codec/encode.h"
#include "ps/aligned_floats.h"
#include "ps/kernels.h"
#include "ps/optimizer.h"
#include "ps/slice.h"

namespace slackline::ps {
namespace {

constexpr uint64_t kElements = 25'000'000;  // 100 MB
constexpr SliceShape kShape{.elements = kElements, .chunk_elements = 262144};

AlignedFloats Filled(float value) {
  AlignedFloats values = AllocateAlignedFloats(kElements);
  std::fill_n(values.get(), kElements, value);
  return values;
}

void SetBytes(benchmark::State& state, int floats_per_element) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(kElements) *
                          floats_per_element * static_cast<int64_t>(sizeof(float)));
}

// --- What the memory gives --------------------------------------------------------------------------------------

void Triad(benchmark::State& state) {
  const AlignedFloats a = Filled(0), b = Filled(1), c = Filled(2);
  for (auto _ : state) {
    const float* __restrict from1 = b.get();
    const float* __restrict from2 = c.get();
    float* __restrict to = a.get();
    for (uint64_t i = 0; i < kElements; ++i) to[i] = from1[i] + 3.0f * from2[i];
    benchmark::ClobberMemory();
  }
  SetBytes(state, 3);
}

void ReadModifyWrite(benchmark::State& state) {
  const AlignedFloats a = Filled(1);
  for (auto _ : state) {
    float* values = a.get();
    for (uint64_t i = 0; i < kElements; ++i) values[i] *= 0.999f;
    benchmark::ClobberMemory();
  }
  SetBytes(state, 2);
}

// The least that an optimizer with `arrays` arrays of its own and weights can do: read a gradient, change the arrays.
template <int arrays>
void Update(benchmark::State& state) {
  const AlignedFloats gradient = Filled(1e-3f);
  const AlignedFloats changed[] = {Filled(1), Filled(arrays > 1 ? 2 : 0), Filled(arrays > 2 ? 3 : 0)};
  for (auto _ : state) {
    const float* __restrict from = gradient.get();
    float* __restrict a = changed[0].get();
    float* __restrict b = changed[1].get();
    float* __restrict c = changed[2].get();
    for (uint64_t i = 0; i < kElements; ++i) {
      a[i] += from[i];
      if constexpr (arrays > 1) b[i] += from[i];
      if constexpr (arrays > 2) c[i] += from[i];
    }
    benchmark::ClobberMemory();
  }
  SetBytes(state, 1 + 2 * arrays);
}

// --- Kernels ----------------------------------------------------------------------------------------------------

// Each element reads weight and gradient and writes the weight, and reads and writes each state array.
void Kernel(benchmark::State& state, const OptimizerConfig& config) {
  const AlignedFloats weights = Filled(1), gradient = Filled(1e-3f);
  OptimizerState optimizer(config, kElements);
  for (auto _ : state) {
    optimizer.BeginStep(config.lr);
    for (uint64_t begin = 0; begin < kElements; begin += Slice::kBlockElements) {
      const size_t size = std::min<uint64_t>(Slice::kBlockElements, kElements - begin);
      optimizer.StepBlock(begin, {gradient.get() + begin, size}, {weights.get() + begin, size});
    }
    benchmark::ClobberMemory();
  }
  SetBytes(state, 3 + 2 * static_cast<int>(optimizer.arrays()));
}

// From encoded bytes in one piece, as a push of one worker is applied.
void DecodeAndStep(benchmark::State& state, const codec::Codec& codec) {
  const AlignedFloats weights = Filled(1), gradient = Filled(1e-3f);
  std::vector<std::byte> encoded(codec::EncodedBytesMax(codec, kElements));
  encoded.resize(codec::Encode(codec, {gradient.get(), kElements}, absl::MakeSpan(encoded)));
  const ByteSegments bytes(encoded);
  alignas(kCacheLineBytes) std::array<float, Slice::kBlockElements> block;
  for (auto _ : state) {
    codec::BlockDecoder decoder(codec, bytes);
    for (uint64_t begin = 0; begin < kElements; begin += block.size()) {
      const size_t size = std::min<uint64_t>(block.size(), kElements - begin);
      SgdStep({.lr = 0.1f}, {size, decoder.Next(absl::MakeSpan(block).first(size)), weights.get() + begin});
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(encoded.size() + 2 * kElements * sizeof(float)));
}

// --- Snapshots --------------------------------------------------------------------------------------------------

void StepSlice(const AlignedFloats& gradient, Slice& slice) {
  slice.Update([&](uint64_t begin, absl::Span<float> values) {
    SgdStep({.lr = 0.1f}, {values.size(), gradient.get() + begin, values.data()});
  });
}

// A step while nobody reads.
void StepInPlace(benchmark::State& state) {
  const AlignedFloats gradient = Filled(1e-3f);
  Slice slice(kShape);
  for (auto _ : state) StepSlice(gradient, slice);
  SetBytes(state, 3);
}

// Each step with a reader that still holds the version before it.
void StepCopyOnWrite(benchmark::State& state) {
  const AlignedFloats gradient = Filled(1e-3f);
  Slice slice(kShape);
  for (auto _ : state) {
    const SliceView view = slice.View();
    StepSlice(gradient, slice);
  }
  SetBytes(state, 3);
}

// The same with what D3 is measured against: the snapshot is copied under the mutex that steps take.
void StepMutexAndCopy(benchmark::State& state) {
  const AlignedFloats gradient = Filled(1e-3f), weights = Filled(0), snapshot = Filled(0);
  absl::Mutex mutex;
  for (auto _ : state) {
    {
      absl::MutexLock lock(&mutex);
      std::memcpy(snapshot.get(), weights.get(), kElements * sizeof(float));
    }
    absl::MutexLock lock(&mutex);
    SgdStep({.lr = 0.1f}, {kElements, gradient.get(), weights.get()});
  }
  SetBytes(state, 3);
}

// --- Report -----------------------------------------------------------------------------------------------------

OptimizerConfig Config(OptimizerKind kind, double momentum, bool nesterov) {
  return {.kind = kind, .momentum = momentum, .nesterov = nesterov, .weight_decay = 1e-4};
}

void RegisterAll() {
  bench::RegisterLoop("triad", Triad);
  bench::RegisterLoop("read_modify_write", ReadModifyWrite);
  bench::RegisterLoop("update_1", Update<1>);
  bench::RegisterLoop("update_2", Update<2>);
  bench::RegisterLoop("update_3", Update<3>);
  bench::RegisterLoop("sgd", Kernel, Config(OptimizerKind::kSgd, 0, false));
  bench::RegisterLoop("momentum", Kernel, Config(OptimizerKind::kSgd, 0.9, false));
  bench::RegisterLoop("nesterov", Kernel, Config(OptimizerKind::kSgd, 0.9, true));
  bench::RegisterLoop("adam", Kernel, Config(OptimizerKind::kAdam, 0, false));
  bench::RegisterLoop("adamw", Kernel, Config(OptimizerKind::kAdamW, 0, false));
  for (const char* codec : {"fp32", "bf16", "fp16", "int8", "topk:0.01"}) {
    bench::RegisterLoop(absl::StrCat(codec, "_sgd").c_str(), DecodeAndStep, codec::ParseCodec(codec).value());
  }
  bench::RegisterLoop("step_in_place", StepInPlace);
  bench::RegisterLoop("step_copy_on_write", StepCopyOnWrite);
  bench::RegisterLoop("step_mutex_and_copy", StepMutexAndCopy);
}

// Each kernel against one array changed in place, and against as many arrays as it reads and changes itself.
bench::RatioReporter Reporter() {
  return bench::RatioReporter({{"sgd", "read_modify_write"},
                               {"sgd", "update_1"},
                               {"momentum", "read_modify_write"},
                               {"momentum", "update_2"},
                               {"nesterov", "read_modify_write"},
                               {"nesterov", "update_2"},
                               {"adam", "read_modify_write"},
                               {"adam", "update_3"},
                               {"adamw", "read_modify_write"},
                               {"adamw", "update_3"},
                               {"fp32_sgd", "update_1"},
                               {"bf16_sgd", "update_1"},
                               {"fp16_sgd", "update_1"},
                               {"int8_sgd", "update_1"},
                               {"topk:0.01_sgd", "update_1"},
                               {"step_copy_on_write", "step_in_place"},
                               {"step_copy_on_write", "step_mutex_and_copy"}});
}

}  // namespace
}  // namespace slackline::ps

int main(int argc, char** argv) {
  slackline::ps::RegisterAll();
  slackline::bench::RatioReporter reporter = slackline::ps::Reporter();
  std::printf("kernels for %s\n", slackline::ps::KernelTarget());
  return slackline::bench::RunInterleaved(argc, argv, reporter);
}

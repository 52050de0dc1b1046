// Measures encoding on a GPU beside a copy within its memory, and copies between GPU and host, from pinned and from
// pageable memory. CUDA's events give the times. Rates count the float32 bytes of the values.
#include <benchmark/benchmark.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/ratio_reporter.h"
#include "common/base/check.h"
#include "common/codec/codec.h"
#include "common/codec/topk.h"
#include "worker/cuda/codec_kernels.h"

namespace slackline::worker::gpu {
namespace {

// Number of elements: a bucket of 4 MiB, and a model of 100 MB.
constexpr size_t kSizes[] = {1 << 20, 25'000'000};

void Check(int said) { SLACKLINE_CHECK(said == static_cast<int>(cudaSuccess)); }

// Memory with the function that frees it.
using Memory = std::unique_ptr<void, int (*)(void*)>;
Memory OnDevice(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes));
  return {memory, [](void* old) { return static_cast<int>(cudaFree(old)); }};
}
Memory Pinned(size_t bytes) {
  void* memory = nullptr;
  Check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
  return {memory, [](void* old) { return static_cast<int>(cudaFreeHost(old)); }};
}

// Values of many sizes, as gradients are.
Memory Gradient(size_t elements) {
  std::vector<float> values(elements);
  uint32_t random = 1;
  for (float& value : values) {
    random = random * 1664525 + 1013904223;
    const float unit = static_cast<float>(random >> 8) / (1 << 24) - 0.5f;
    value = 1e-2f * unit * unit * unit;
  }
  Memory memory = OnDevice(elements * sizeof(float));
  Check(cudaMemcpy(memory.get(), values.data(), elements * sizeof(float), cudaMemcpyHostToDevice));
  return memory;
}

// Measures what `enqueue` puts on the default stream.
void Measure(benchmark::State& state, size_t elements, const std::function<int()>& enqueue) {
  cudaEvent_t begin = nullptr, end = nullptr;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) Check(enqueue());
  Check(cudaDeviceSynchronize());
  for (auto _ : state) {
    Check(cudaEventRecord(begin, nullptr));
    Check(enqueue());
    Check(cudaEventRecord(end, nullptr));
    Check(cudaEventSynchronize(end));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end));
    state.SetIterationTime(milliseconds / 1e3);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * elements * sizeof(float)));
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
}

void Copy(benchmark::State& state, size_t elements) {
  const Memory from = Gradient(elements), to = OnDevice(elements * sizeof(float));
  Measure(state, elements, [&] {
    return cudaMemcpyAsync(to.get(), from.get(), elements * sizeof(float), cudaMemcpyDeviceToDevice, nullptr);
  });
}

void CopyToHost(benchmark::State& state, size_t elements, bool pinned) {
  const Memory from = Gradient(elements);
  std::vector<float> pageable(pinned ? 0 : elements);
  const Memory memory = Pinned(pinned ? elements * sizeof(float) : 1);
  void* const to = pinned ? memory.get() : pageable.data();
  Measure(state, elements,
          [&] { return cudaMemcpyAsync(to, from.get(), elements * sizeof(float), cudaMemcpyDeviceToHost, nullptr); });
}

void CopyToDevice(benchmark::State& state, size_t elements, bool pinned) {
  const Memory to = OnDevice(elements * sizeof(float));
  std::vector<float> pageable(pinned ? 0 : elements);
  const Memory memory = Pinned(pinned ? elements * sizeof(float) : 1);
  const void* const from = pinned ? memory.get() : pageable.data();
  Measure(state, elements,
          [&] { return cudaMemcpyAsync(to.get(), from, elements * sizeof(float), cudaMemcpyHostToDevice, nullptr); });
}

void Encode(benchmark::State& state, const codec::Codec& codec, size_t elements, bool feedback) {
  const Memory in = Gradient(elements), residual = Gradient(elements);
  const Memory out = OnDevice(codec::EncodedBytesMax(codec, elements));
  const Memory scratch = OnDevice(TopKScratchBytes(elements)), written = OnDevice(sizeof(uint64_t));
  const DeviceValues values = {elements, static_cast<const float*>(in.get()),
                               feedback ? static_cast<float*>(residual.get()) : nullptr};
  auto* const bytes = static_cast<std::byte*>(out.get());
  Measure(state, elements, [&]() -> int {
    switch (codec.encoding) {
      case codec::Encoding::kBf16:
        return EncodeBf16(values, bytes, nullptr);
      case codec::Encoding::kFp16:
        return EncodeFp16(values, bytes, nullptr);
      case codec::Encoding::kInt8:
        return EncodeInt8(values, bytes, nullptr);
      default:
        return EncodeTopK(codec::TopKPairsMax(codec, elements), values, scratch.get(), bytes,
                          static_cast<uint64_t*>(written.get()), nullptr);
    }
  });
}

void Squares(benchmark::State& state, size_t elements) {
  const Memory in = Gradient(elements), parts = OnDevice(kSquareSums * sizeof(double));
  Measure(state, elements, [&] {
    return SumSquares(static_cast<const float*>(in.get()), elements, static_cast<double*>(parts.get()), nullptr);
  });
}

template <typename... Arguments>
void Register(const std::string& name, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...)->Unit(benchmark::kMicrosecond)->UseManualTime();
}

bench::RatioReporter RegisterAll() {
  std::vector<std::pair<std::string, std::string>> ratios;
  for (const size_t elements : kSizes) {
    const std::string size = absl::StrCat("_", elements * sizeof(float) / 1'000'000, "MB");
    const std::string copy = absl::StrCat("copy_on_device", size);
    Register(copy, Copy, elements);
    for (const bool pinned : {true, false}) {
      const std::string kind = absl::StrCat(pinned ? "_pinned" : "_pageable", size);
      Register(absl::StrCat("copy_to_host", kind), CopyToHost, elements, pinned);
      Register(absl::StrCat("copy_to_device", kind), CopyToDevice, elements, pinned);
    }
    Register(absl::StrCat("sum_of_squares", size), Squares, elements);
    ratios.emplace_back(absl::StrCat("sum_of_squares", size), copy);
    for (const char* name : {"bf16", "fp16", "int8", "topk:0.01"}) {
      for (const bool feedback : {false, true}) {
        const std::string what = absl::StrCat("encode_", name, feedback ? "_feedback" : "", size);
        Register(what, Encode, codec::ParseCodec(name).value(), elements, feedback);
        ratios.emplace_back(what, copy);
      }
    }
  }
  return bench::RatioReporter(std::move(ratios));
}

}  // namespace
}  // namespace slackline::worker::gpu

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "gpu_codec_bench: there is no GPU\n");
    return 77;
  }
  slackline::bench::RatioReporter reporter = slackline::worker::gpu::RegisterAll();
  return slackline::bench::RunInterleaved(argc, argv, reporter);
}

// The optimizer's kernels beside what this machine's memory gives in the same run, and copy-on-write beside a
// snapshot that is copied under a mutex. Ends with the ratios, which say more than GB/s on a shared machine.
//
// Bytes are those that the loop names (STREAM's way: no write-allocate): 12 an element for the triad and plain SGD.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
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

void FiniteCheck(benchmark::State& state) {
  const AlignedFloats gradient = Filled(1e-3f);
  for (auto _ : state) benchmark::DoNotOptimize(AllFinite(kElements, gradient.get()));
  SetBytes(state, 1);
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

// Keeps the best rate of each loop, over --benchmark_repetitions, for the table of ratios.
class RatioReporter : public benchmark::ConsoleReporter {
 public:
  RatioReporter() : ConsoleReporter(OO_None) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto rate = run.counters.find("bytes_per_second");
      if (run.run_type != Run::RT_Iteration || rate == run.counters.end()) continue;
      double& best = rates_[run.run_name.function_name];
      best = std::max<double>(best, rate->second);
    }
  }
  void Finalize() override {
    for (const char* kernel : {"sgd", "momentum", "nesterov", "adam", "adamw", "finite"}) {
      Print(kernel, "triad");
      Print(kernel, "read_modify_write");
    }
    Print("step_copy_on_write", "step_in_place");
    Print("step_copy_on_write", "step_mutex_and_copy");
  }

 private:
  // Nothing where a filter left one of them out.
  void Print(const std::string& what, const std::string& against) const {
    if (!rates_.contains(what) || !rates_.contains(against)) return;
    std::printf("ratio %-20s / %-20s %5.2f   (%.1f / %.1f GB/s)\n", what.c_str(), against.c_str(),
                rates_.at(what) / rates_.at(against), rates_.at(what) / 1e9, rates_.at(against) / 1e9);
  }

  std::map<std::string, double> rates_;
};

OptimizerConfig Config(OptimizerKind kind, double momentum, bool nesterov) {
  return {.kind = kind, .momentum = momentum, .nesterov = nesterov, .weight_decay = 1e-4};
}

template <typename... Arguments>
void Register(Arguments... arguments) {
  // Time on the wall: other processes on the machine count against memory-bound loops anyway.
  benchmark::RegisterBenchmark(arguments...)->Unit(benchmark::kMillisecond)->UseRealTime();
}

void RegisterAll() {
  Register("triad", Triad);
  Register("read_modify_write", ReadModifyWrite);
  Register("sgd", Kernel, Config(OptimizerKind::kSgd, 0, false));
  Register("momentum", Kernel, Config(OptimizerKind::kSgd, 0.9, false));
  Register("nesterov", Kernel, Config(OptimizerKind::kSgd, 0.9, true));
  Register("adam", Kernel, Config(OptimizerKind::kAdam, 0, false));
  Register("adamw", Kernel, Config(OptimizerKind::kAdamW, 0, false));
  Register("finite", FiniteCheck);
  Register("step_in_place", StepInPlace);
  Register("step_copy_on_write", StepCopyOnWrite);
  Register("step_mutex_and_copy", StepMutexAndCopy);
}

}  // namespace
}  // namespace slackline::ps

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  slackline::ps::RegisterAll();
  slackline::ps::RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}

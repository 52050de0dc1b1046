// What one core can do with memory: the ceiling of kernels, slices and the shared-memory path.
//
// GB count what a loop names, 10^9 bytes, without the write-allocate: memcpy 8 bytes an element, the triad 12, an
// in-place read-modify-write 8, plain SGD 12 (weight and gradient read, weight written).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "bench/support/command_line.h"
#include "bench/support/rate.h"
#include "bench/support/report.h"
#include "common/optimizer/aligned_floats.h"

namespace slackline::bench {
namespace {

constexpr float kRate = 0.01f;

struct Arrays {
  explicit Arrays(size_t elements) : size(elements) {
    for (auto* array : {&a, &b, &c}) {
      *array = AllocateAlignedFloats(elements);
      std::fill_n(array->get(), elements, 1.0f);  // touched: pages are there
    }
  }

  const size_t size;
  AlignedFloats a, b, c;
};

void Copy(const Arrays& arrays) { std::memcpy(arrays.a.get(), arrays.b.get(), arrays.size * sizeof(float)); }

void Triad(const Arrays& arrays) {
  float* __restrict to = arrays.a.get();
  const float* __restrict x = arrays.b.get();
  const float* __restrict y = arrays.c.get();
  for (size_t i = 0; i < arrays.size; ++i) to[i] = x[i] + 3.0f * y[i];
}

void ReadModifyWrite(const Arrays& arrays) {
  float* values = arrays.a.get();
  for (size_t i = 0; i < arrays.size; ++i) values[i] *= 0.999f;
}

void SgdInPlace(const Arrays& arrays) {
  float* __restrict weights = arrays.a.get();
  const float* __restrict gradient = arrays.b.get();
  for (size_t i = 0; i < arrays.size; ++i) weights[i] -= kRate * gradient[i];
}

// The old version stays as it is for those who read it.
void SgdCopyOnWrite(Arrays& arrays) {
  float* __restrict next = arrays.c.get();
  const float* __restrict weights = arrays.a.get();
  const float* __restrict gradient = arrays.b.get();
  for (size_t i = 0; i < arrays.size; ++i) next[i] = weights[i] - kRate * gradient[i];
  std::swap(arrays.a, arrays.c);
}

template <typename Loop>
void Measure(const char* what, int bytes_an_element, const Effort& effort, Arrays& arrays, Loop loop, Report& report) {
  loop(arrays);
  const Rounds rounds = Repeat(effort.seconds, [&] { loop(arrays); });
  const double gigabytes = 1e-9 * bytes_an_element * static_cast<double>(arrays.size);
  // Time on the wall, the median pass: others on the machine count against it as against what it is compared with.
  report.Add(Row(what).Add("gb_per_s", gigabytes / (1e-6 * rounds.p50_us())).Add("ms", 1e-3 * rounds.p50_us()));
}

int Main(int argc, char** argv) {
  double megabytes = 100;
  Effort effort{.seconds = 0.5};
  CLI::App app("What one core can do with memory.", "memory_ceiling");
  app.add_option("--megabytes", megabytes, "Size of each array, 10^6 bytes")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e5));
  AddEffort(app, effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;

  Arrays arrays(static_cast<size_t>(megabytes * 1e6) / sizeof(float));
  Report report(effort.json);
  for (int repeat = 0; repeat < effort.repeats; ++repeat) {
    Measure("memcpy", 8, effort, arrays, Copy, report);
    Measure("triad", 12, effort, arrays, Triad, report);
    Measure("read-modify-write", 8, effort, arrays, ReadModifyWrite, report);
    Measure("sgd in place", 12, effort, arrays, SgdInPlace, report);
    Measure("sgd copy-on-write", 12, effort, arrays, SgdCopyOnWrite, report);
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }

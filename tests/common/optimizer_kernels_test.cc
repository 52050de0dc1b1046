// The vector kernels give the bits of the scalar ones on every instruction set.
#include "common/optimizer/kernels.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/common/optimizer_oracle.h"
#include "tests/each_target.h"
#include "tests/hard_floats.h"

namespace slackline::optimizer_kernels_test {
namespace {

constexpr SgdCoefficients kSgd{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 1e-3f};
constexpr AdamCoefficients kAdam{.step_size = 0.01f,
                                 .one_minus_beta1 = 0.1f,
                                 .beta2 = 0.999f,
                                 .one_minus_beta2 = 1e-3f,
                                 .epsilon = 1e-8f,
                                 .weight_decay = 1e-3f,
                                 .keep = 0.9999f};

// One array that is read and three that are changed; each begins `offset` elements behind an aligned place.
struct Arrays {
  Arrays(size_t size, size_t offset, uint32_t seed) : elements(size), begin(offset) {
    for (uint32_t i = 0; i < 4; ++i) values.push_back(HardFloats(size + 2 * offset, seed + i));
    // Second moments are never negative.
    for (float& square : values[3]) square = std::fabs(square);
  }
  float* at(size_t index) { return values[index].data() + begin; }
  const float* gradient() { return moved.empty() ? at(0) : reinterpret_cast<const float*>(moved.data() + moved_by); }
  Block block() { return {.elements = elements, .gradient = gradient(), .weights = at(1)}; }

  // The gradient is read from a copy that begins `bytes` behind an aligned place.
  void MoveGradient(size_t bytes) {
    moved_by = bytes;
    moved.resize(bytes + elements * sizeof(float));
    if (elements > 0) std::memcpy(moved.data() + bytes, at(0), elements * sizeof(float));
  }

  size_t elements;
  size_t begin;
  std::vector<std::vector<float>> values;
  size_t moved_by = 0;
  std::vector<std::byte> moved;
};

using Kernel = std::function<void(Arrays&)>;

// Runs both on the same values, of all small sizes at all alignments and the fast one's gradient at odd bytes too, and
// compares all arrays with their surroundings.
void ExpectEqual(const Kernel& fast, const Kernel& oracle) {
  OnEachTarget(KernelTarget, [&] {
    for (size_t size = 0; size <= 70; ++size) {
      for (size_t offset : {0, 1, 3}) {
        Arrays got(size, offset, 1000 * size), want = got;
        got.MoveGradient(offset);
        fast(got);
        oracle(want);
        for (size_t i = 0; i < 4; ++i) {
          SCOPED_TRACE(testing::Message() << "size " << size << ", offset " << offset << ", array " << i);
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(got.values[i], want.values[i]));
        }
      }
    }
  });
}

TEST(Kernels, SgdIsTheOracles) {
  ExpectEqual([](Arrays& a) { SgdStep(kSgd, a.block()); }, [](Arrays& a) { scalar::SgdStep(kSgd, a.block()); });
}

TEST(Kernels, MomentumIsTheOracles) {
  ExpectEqual([](Arrays& a) { MomentumStep(kSgd, a.block(), a.at(2)); },
              [](Arrays& a) { scalar::MomentumStep(kSgd, a.block(), a.at(2)); });
}

TEST(Kernels, NesterovIsTheOracles) {
  ExpectEqual([](Arrays& a) { NesterovStep(kSgd, a.block(), a.at(2)); },
              [](Arrays& a) { scalar::NesterovStep(kSgd, a.block(), a.at(2)); });
}

TEST(Kernels, AdamIsTheOracles) {
  ExpectEqual(
      [](Arrays& a) {
        AdamStep(kAdam, a.block(), {a.at(2), a.at(3)});
      },
      [](Arrays& a) {
        scalar::AdamStep(kAdam, a.block(), {a.at(2), a.at(3)});
      });
}

constexpr CompensationCoefficients kCompensation{
    .lambda = 0.3f, .mean_square = 0.95f, .one_minus_mean_square = 0.05f, .epsilon = 1e-7f};

// The weights of then are what the buffer of momentum is elsewhere; what comes out replaces the weights.
StaleBlock Stale(Arrays& a, const float* gradient, std::vector<float>& now) {
  now.assign(a.at(1), a.at(1) + a.elements);
  return {.elements = a.elements,
          .gradient = gradient,
          .factor = 0.7f,
          .weights = now.data(),
          .weights_then = a.at(2),
          .out = a.at(1)};
}

TEST(Kernels, CompensationIsTheOracles) {
  std::vector<float> now;
  ExpectEqual([&](Arrays& a) { Compensate(kCompensation, Stale(a, a.gradient(), now)); },
              [&](Arrays& a) { scalar::Compensate(kCompensation, Stale(a, a.at(0), now)); });
  ExpectEqual([&](Arrays& a) { CompensateAdaptive(kCompensation, Stale(a, a.gradient(), now), a.at(3)); },
              [&](Arrays& a) { scalar::CompensateAdaptive(kCompensation, Stale(a, a.at(0), now), a.at(3)); });
}

TEST(Kernels, AverageIsTheOracles) {
  for (float rate : {0.3f, 1.0f}) {
    ExpectEqual([&](Arrays& a) { Average(a.block(), rate); }, [&](Arrays& a) { scalar::Average(a.block(), rate); });
  }
}

TEST(Kernels, ScaleAndAddScaledAreTheOracles) {
  ExpectEqual([](Arrays& a) { Scale(a.elements, 0.7f, a.gradient(), a.at(1)); },
              [](Arrays& a) { scalar::Scale(a.elements, 0.7f, a.at(0), a.at(1)); });
  ExpectEqual([](Arrays& a) { AddScaled(a.elements, 0.7f, a.gradient(), a.at(1)); },
              [](Arrays& a) { scalar::AddScaled(a.elements, 0.7f, a.at(0), a.at(1)); });
}

}  // namespace
}  // namespace slackline::optimizer_kernels_test

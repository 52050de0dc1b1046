// The optimizers' loops over elements, in the CPU's vector instructions. The first call chooses the widest compiled
// instruction set that the CPU has. tests/common/optimizer_oracle.h has the same loops in plain
// C++.
//
// Each element is computed by itself, in float32, without contraction, reciprocals and fast-math. The vector width
// therefore does not affect the result, and replicas agree to the bit. Only the bits inside a NaN may differ.
//
// Arrays of one call must not overlap. No array needs alignment, and read-only ones may begin at any byte, since
// gradients are used where they arrived.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace slackline {

struct Block {
  size_t elements = 0;
  const float* gradient = nullptr;
  float* weights = nullptr;
};

struct SgdCoefficients {
  float lr = 0;
  float momentum = 0;
  float weight_decay = 0;
};

// w -= lr g', where g' = g + weight_decay w.
void SgdStep(const SgdCoefficients& coefficients, const Block& block);
// b = momentum b + g'; w -= lr b. A buffer of zeros makes the first b = g', as in torch.optim.SGD.
void MomentumStep(const SgdCoefficients& coefficients, const Block& block, float* buffer);
// b = momentum b + g'; w -= lr (g' + momentum b).
void NesterovStep(const SgdCoefficients& coefficients, const Block& block, float* buffer);

// Kingma and Ba 2015 with the bias corrections moved out of the loop, as at the end of their section 2: both sides of
// the fraction are multiplied by sqrt(1 - beta2^step), which leaves one division per element.
struct AdamCoefficients {
  // lr sqrt(1 - beta2^step) / (1 - beta1^step)
  float step_size = 0;
  // The difference is computed in double first: 1 - 0.999f is off by 1e-5.
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  // epsilon sqrt(1 - beta2^step)
  float epsilon = 0;
  // Factor of the weights that is added to the gradient (Adam).
  float weight_decay = 0;
  // Factor of the weights (AdamW): 1 - lr weight_decay.
  float keep = 1;
};

struct AdamMoments {
  float* average = nullptr;
  float* square_average = nullptr;
};

// g' = g + weight_decay w; m += (1 - beta1) (g' - m); v = beta2 v + (1 - beta2) g'^2;
// w = keep w - step_size m / (sqrt(v) + epsilon).
void AdamStep(const AdamCoefficients& coefficients, const Block& block, const AdamMoments& moments);

// A gradient, and the weights for its delay compensation.
struct StaleBlock {
  size_t elements = 0;
  const float* gradient = nullptr;
  // Factor of the gradient, applied first.
  float factor = 1;
  // Current weights.
  const float* weights = nullptr;
  // Weights at the time when the gradient was computed. May equal `weights`: nothing has changed.
  const float* weights_then = nullptr;
  float* out = nullptr;
};

struct CompensationCoefficients {
  float lambda = 0;
  // Share of the mean square that is kept. Adaptive only.
  float mean_square = 0;
  // Computed in double first.
  float one_minus_mean_square = 1;
  float epsilon = 0;
};

// Delay compensation (Zheng et al. 2017): g = factor gradient; out = g + (lambda g) (g (weights - weights_then)). This
// order keeps the square of a large gradient from overflowing if the weights have not changed.
void Compensate(const CompensationCoefficients& coefficients, const StaleBlock& block);
// Like Compensate(), but first s = mean_square s + (1 - mean_square) (g g), and then lambda / sqrt(s + epsilon)
// replaces lambda.
void CompensateAdaptive(const CompensationCoefficients& coefficients, const StaleBlock& block, float* square_average);

// values += rate (mean - values); a rate of 1 gives the mean itself, to the bit.
void Average(const Block& mean_and_values, float rate);

// Computes out = now + factor (now - before).
void Extrapolate(size_t elements, float factor, const float* before, const float* now, float* out);

// Computes the mean of each element over the rows, without its `left_out` largest and `left_out` smallest values.
// Reorders the rows. Requires: 2 left_out < rows.size().
void TrimmedMean(size_t elements, size_t left_out, absl::Span<float* const> rows, float* out);

// Computes out = factor in.
void Scale(size_t elements, float factor, const float* in, float* out);
// Computes out += factor in.
void AddScaled(size_t elements, float factor, const float* in, float* out);

// Returns the instruction set in use, as Highway names it: "AVX2".
const char* KernelTarget();

}  // namespace slackline

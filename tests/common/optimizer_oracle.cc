#include "tests/common/optimizer_oracle.h"

#include <algorithm>
#include <cmath>

namespace slackline::scalar {

void SgdStep(const SgdCoefficients& coefficients, const Block& block) {
  const auto [lr, momentum, decay] = coefficients;
  const float* __restrict g = block.gradient;
  float* __restrict w = block.weights;
  for (size_t i = 0; i < block.elements; ++i) {
    const float gradient = g[i] + decay * w[i];
    w[i] -= lr * gradient;
  }
}

void MomentumStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  const auto [lr, momentum, decay] = coefficients;
  const float* __restrict g = block.gradient;
  float* __restrict w = block.weights;
  float* __restrict b = buffer;
  for (size_t i = 0; i < block.elements; ++i) {
    const float gradient = g[i] + decay * w[i];
    b[i] = momentum * b[i] + gradient;
    w[i] -= lr * b[i];
  }
}

void NesterovStep(const SgdCoefficients& coefficients, const Block& block, float* buffer) {
  const auto [lr, momentum, decay] = coefficients;
  const float* __restrict g = block.gradient;
  float* __restrict w = block.weights;
  float* __restrict b = buffer;
  for (size_t i = 0; i < block.elements; ++i) {
    const float gradient = g[i] + decay * w[i];
    b[i] = momentum * b[i] + gradient;
    w[i] -= lr * (gradient + momentum * b[i]);
  }
}

void AdamStep(const AdamCoefficients& coefficients, const Block& block, const AdamMoments& moments) {
  // By value: the compiler must not think that a store to w may change them.
  const AdamCoefficients c = coefficients;
  const float* __restrict g = block.gradient;
  float* __restrict w = block.weights;
  float* __restrict m = moments.average;
  float* __restrict v = moments.square_average;
  for (size_t i = 0; i < block.elements; ++i) {
    const float gradient = g[i] + c.weight_decay * w[i];
    m[i] += c.one_minus_beta1 * (gradient - m[i]);
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (gradient * gradient);
    w[i] = c.keep * w[i] - c.step_size * m[i] / (std::sqrt(v[i]) + c.epsilon);
  }
}

void Compensate(const CompensationCoefficients& coefficients, const StaleBlock& block) {
  const StaleBlock b = block;
  const float lambda = coefficients.lambda;
  float* __restrict out = b.out;
  for (size_t i = 0; i < b.elements; ++i) {
    const float g = b.factor * b.gradient[i];
    out[i] = g + (lambda * g) * (g * (b.weights[i] - b.weights_then[i]));
  }
}

void CompensateAdaptive(const CompensationCoefficients& coefficients, const StaleBlock& block, float* square_average) {
  const CompensationCoefficients c = coefficients;
  const StaleBlock b = block;
  float* __restrict out = b.out;
  float* __restrict s = square_average;
  for (size_t i = 0; i < b.elements; ++i) {
    const float g = b.factor * b.gradient[i];
    s[i] = c.mean_square * s[i] + c.one_minus_mean_square * (g * g);
    const float lambda = c.lambda / std::sqrt(s[i] + c.epsilon);
    out[i] = g + (lambda * g) * (g * (b.weights[i] - b.weights_then[i]));
  }
}

void Average(const Block& mean_and_values, float rate) {
  const float* __restrict mean = mean_and_values.gradient;
  float* __restrict values = mean_and_values.weights;
  if (rate == 1) {
    std::copy_n(mean, mean_and_values.elements, values);
    return;
  }
  for (size_t i = 0; i < mean_and_values.elements; ++i) values[i] += rate * (mean[i] - values[i]);
}

void Scale(size_t elements, float factor, const float* in, float* out) {
  const float* __restrict from = in;
  float* __restrict to = out;
  for (size_t i = 0; i < elements; ++i) to[i] = factor * from[i];
}

void AddScaled(size_t elements, float factor, const float* in, float* out) {
  const float* __restrict from = in;
  float* __restrict to = out;
  for (size_t i = 0; i < elements; ++i) to[i] += factor * from[i];
}

}  // namespace slackline::scalar

// The kernels of common/optimizer/kernels.h, one element at a time. They are the simplest form and define the correct
// results.
#pragma once

#include <cstddef>

#include "common/optimizer/kernels.h"

namespace slackline::scalar {

void SgdStep(const SgdCoefficients& coefficients, const Block& block);
void MomentumStep(const SgdCoefficients& coefficients, const Block& block, float* buffer);
void NesterovStep(const SgdCoefficients& coefficients, const Block& block, float* buffer);
void AdamStep(const AdamCoefficients& coefficients, const Block& block, const AdamMoments& moments);
void Compensate(const CompensationCoefficients& coefficients, const StaleBlock& block);
void CompensateAdaptive(const CompensationCoefficients& coefficients, const StaleBlock& block, float* square_average);
void Average(const Block& mean_and_values, float rate);
void Scale(size_t elements, float factor, const float* in, float* out);
void AddScaled(size_t elements, float factor, const float* in, float* out);

}  // namespace slackline::scalar

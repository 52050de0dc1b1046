// What a step leaves out at random: dropout and stochastic depth. LibTorch inside.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/layers.h"

namespace slackline::worker {

// Masks are drawn on the CPU, so that they do not depend on the device; they are small beside what they are laid over.
//
// Thread-safety: none.
class Noise {
 public:
  struct Seed {
    uint64_t model = 0;
    uint64_t batch = 0;
  };

  explicit Noise(at::Device device);

  // A pass: equal seeds draw equal masks. In evaluation nothing is left out.
  void Begin(Mode mode, const Seed& seed);

  // Each element becomes 0 with probability `p`, and is divided by 1 - p otherwise (Srivastava et al. 2014).
  at::Tensor Dropout(const at::Tensor& x, double p);
  // The same for each image, which is x's first dimension, as a whole (Huang et al. 2016: stochastic depth).
  at::Tensor DropImages(const at::Tensor& x, double p);
  // What DropImages() would multiply x by; undefined where it would leave x alone.
  at::Tensor ImageMask(const at::Tensor& x, double p);

 private:
  at::Tensor Mask(at::IntArrayRef shape, double p);

  const at::Device device_;
  at::Generator generator_;
  Mode mode_ = Mode::kEvaluation;
};

}  // namespace slackline::worker

// Noise: the random omissions of a step, dropout and stochastic depth. Uses LibTorch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/networks/layers.h"

namespace slackline::worker {

// Noise draws masks on the CPU, so that they do not depend on the device. Masks are small compared to the tensors that
// they apply to.
//
// Thread-safety: none.
class Noise {
 public:
  struct Seed {
    uint64_t model = 0;
    uint64_t batch = 0;
  };

  explicit Noise(at::Device device);

  // Begins a pass. Equal seeds draw equal masks. Evaluation omits nothing.
  void Begin(Mode mode, const Seed& seed);

  // Sets each element to 0 with probability `p`, and divides it by 1 - p otherwise (Srivastava et al. 2014).
  at::Tensor Dropout(const at::Tensor& x, double p);
  // Applies dropout to each image as a whole; images are x's first dimension (Huang et al. 2016: stochastic depth).
  at::Tensor DropImages(const at::Tensor& x, double p);
  // Returns the mask by which DropImages() would multiply x; undefined if it would not change x.
  at::Tensor ImageMask(const at::Tensor& x, double p);

 private:
  at::Tensor Mask(at::IntArrayRef shape, double p);

  const at::Device device_;
  at::Generator generator_;
  Mode mode_ = Mode::kEvaluation;
};

}  // namespace slackline::worker

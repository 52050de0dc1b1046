#include "worker/model/networks/noise.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <vector>

namespace slackline::worker {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014), so that neighbouring seeds draw nothing alike.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Noise::Noise(at::Device device) : device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(0)) {}

void Noise::Begin(Mode mode, const Seed& seed) {
  mode_ = mode;
  if (mode == Mode::kTraining) generator_.set_current_seed(Mix(Mix(seed.model) + seed.batch));
}

at::Tensor Noise::Dropout(const at::Tensor& x, double p) {
  if (mode_ == Mode::kEvaluation || p == 0) return x;
  return x * Mask(x.sizes(), p);
}

at::Tensor Noise::DropImages(const at::Tensor& x, double p) {
  const at::Tensor mask = ImageMask(x, p);
  return mask.defined() ? x * mask : x;
}

at::Tensor Noise::ImageMask(const at::Tensor& x, double p) {
  if (mode_ == Mode::kEvaluation || p == 0) return {};
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = x.size(0);
  return Mask(shape, p);
}

at::Tensor Noise::Mask(at::IntArrayRef shape, double p) {
  return at::empty(shape, at::kFloat).bernoulli_(1 - p, generator_).div_(1 - p).to(device_);
}

}  // namespace slackline::worker

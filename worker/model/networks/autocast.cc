#include "worker/model/networks/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace slackline::worker {
namespace {

// A convolution and a product of matrices, with their gradients.
void TryHalf(at::Device device) {
  const auto half = at::TensorOptions(at::kHalf).device(device);
  const at::Tensor images = at::ones({2, 8, 6, 6}, half).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor kernels = at::ones({8, 8, 3, 3}, half).set_requires_grad(true);
  at::conv2d(images, kernels).sum().backward();
  const at::Tensor weights = at::ones({8, 8}, half).set_requires_grad(true);
  at::linear(at::ones({4, 8}, half), weights).sum().backward();
}

}  // namespace

Autocast::Autocast(at::Device device, Precision precision) : device_(device) {
  if (precision == Precision::kFloat32) return;
  before_ = Before{.enabled = at::autocast::is_autocast_enabled(device_.type()),
                   .cached = at::autocast::is_autocast_cache_enabled(),
                   .type = at::autocast::get_autocast_dtype(device_.type())};
  at::autocast::set_autocast_dtype(device_.type(), precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_enabled(device_.type(), true);
  // A forward pass uses each weight once, and the cache is one for all threads.
  at::autocast::set_autocast_cache_enabled(false);
}

Autocast::~Autocast() {
  if (!before_) return;
  at::autocast::set_autocast_enabled(device_.type(), before_->enabled);
  at::autocast::set_autocast_dtype(device_.type(), before_->type);
  at::autocast::set_autocast_cache_enabled(before_->cached);
}

NoAutocast::NoAutocast(at::Device device) : device_(device), before_(at::autocast::is_autocast_enabled(device.type())) {
  if (before_) at::autocast::set_autocast_enabled(device_.type(), false);
}

NoAutocast::~NoAutocast() {
  if (before_) at::autocast::set_autocast_enabled(device_.type(), true);
}

absl::Status CheckPrecision(at::Device device, Precision precision) {
  if (precision != Precision::kFp16 || !device.is_cpu()) return absl::OkStatus();
  std::string why;
  try {
    TryHalf(device);
    return absl::OkStatus();
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = error.what();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("worker.precision: found fp16 on a cpu, which LibTorch cannot do here (",
                   why.substr(0, why.find('\n')), "); allowed are float32 and bf16, and fp16 on GPUs"));
}

}  // namespace slackline::worker

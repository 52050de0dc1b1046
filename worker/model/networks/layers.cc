#include "worker/model/networks/layers.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

namespace slackline::worker {
namespace {

// PyTorch's defaults.
constexpr double kBatchNormMomentum = 0.1;
constexpr double kBatchNormEpsilon = 1e-5;
// timm's, for vision transformers.
constexpr double kLayerNormEpsilon = 1e-6;

// kaiming_uniform_ with a = sqrt(5), the default of nn.Linear and nn.Conv2d, comes down to this bound.
void FillPair(at::Tensor& weight, at::Tensor& bias, at::Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight[0].numel()));
  weight.uniform_(-bound, bound, generator);
  if (bias.defined()) bias.uniform_(-bound, bound, generator);
}

// cuDNN reads 16 bytes at a time. A tensor may begin at any element of the flat vectors.
bool FitsCudnn(const at::Tensor& values) {
  return !values.defined() || reinterpret_cast<uintptr_t>(values.const_data_ptr()) % 16 == 0;
}

}  // namespace

Convolution::Convolution(const FlatTensors& tensors, const std::string& name, Bias bias, uint64_t stride)
    : weight_(tensors.Trained(name + ".weight")),
      bias_(bias == Bias::kTrained ? tensors.Trained(name + ".bias") : at::Tensor()),
      gate_(tensors,
            bias == Bias::kTrained ? std::vector{name + ".weight", name + ".bias"} : std::vector{name + ".weight"}),
      stride_(static_cast<int64_t>(stride)),
      padding_(weight_.size(-1) / 2) {}

at::Tensor Convolution::operator()(const at::Tensor& images) const {
  gate_.Pass();
  if (!at::autocast::is_autocast_enabled(images.device().type())) {
    return at::conv2d(images, weight_, bias_, stride_, padding_, /*dilation=*/1, groups_);
  }
  // What of a kernel is larger than small images allow sees only padding. LibTorch 2.13 with oneDNN leaves that part of
  // a gradient in bf16 unwritten, with whatever was in memory. Without it the outputs are the same.
  at::Tensor weight = weight_;
  std::array<int64_t, 2> stride = {stride_, stride_}, padding = {padding_, padding_};
  for (const int64_t side : {0, 1}) {
    const int64_t pixels = images.size(2 + side), reach = std::min(padding_, pixels - 1);
    if (reach == padding_ || weight_.size(2 + side) != 2 * padding_ + 1) continue;
    weight = weight.narrow(2 + side, padding_ - reach, 2 * reach + 1);
    padding[static_cast<size_t>(side)] = reach;
    if (pixels == 1) stride[static_cast<size_t>(side)] = 1;
  }
  return at::conv2d(images, weight, bias_, stride, padding, /*dilation=*/1, groups_);
}

void Convolution::FillUniform(at::Generator& generator) { FillPair(weight_, bias_, generator); }

void Convolution::FillKaimingNormal(at::Generator& generator) {
  const auto fan_out = static_cast<double>(weight_.size(0) * weight_[0][0].numel());
  weight_.normal_(0, std::sqrt(2 / fan_out), generator);
  if (bias_.defined()) bias_.zero_();
}

Linear::Linear(const FlatTensors& tensors, const std::string& name)
    : weight_(tensors.Trained(name + ".weight")),
      bias_(tensors.Trained(name + ".bias")),
      gate_(tensors, {name + ".weight", name + ".bias"}) {}

at::Tensor Linear::operator()(const at::Tensor& rows) const {
  gate_.Pass();
  return at::linear(rows, weight_, bias_);
}

Classifier::Classifier(const FlatTensors& tensors, const std::string& name) {
  if (tensors.Has(name + ".weight")) layer_.emplace(tensors, name);
}

void Linear::FillUniform(at::Generator& generator) { FillPair(weight_, bias_, generator); }

void Linear::FillUniformByOutputs(at::Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight_.size(0)));
  weight_.uniform_(-bound, bound, generator);
  bias_.zero_();
}

void Linear::FillTruncated(double deviation, at::Generator& generator) {
  FillTruncatedNormal(weight_, deviation, generator);
  bias_.zero_();
}

void FillTruncatedNormal(at::Tensor& tensor, double deviation, at::Generator& generator) {
  constexpr double kCut = 2;
  const double inside = std::erf(kCut / deviation / std::sqrt(2.0));
  tensor.uniform_(-inside, inside, generator).erfinv_().mul_(deviation * std::sqrt(2.0)).clamp_(-kCut, kCut);
}

BatchNorm::BatchNorm(const FlatTensors& tensors, const std::string& name)
    : scale_(tensors.Trained(name + ".weight")),
      shift_(tensors.Trained(name + ".bias")),
      mean_(&tensors.Averaged(name + ".running_mean")),
      variance_(&tensors.Averaged(name + ".running_var")),
      gate_(tensors, {name + ".weight", name + ".bias"}) {}

at::Tensor BatchNorm::operator()(const at::Tensor& images, Mode mode) const {
  gate_.Pass();
  const bool training = mode == Mode::kTraining;
  at::Tensor mean = training ? mean_->pushed : mean_->agreed;
  at::Tensor variance = training ? variance_->pushed : variance_->agreed;
  // One value a channel has no variance: LibTorch would write 0 / 0. The statistics stay as they were agreed.
  if (training && images.numel() == images.size(1)) mean = variance = at::Tensor();
  if (images.is_cuda() && !(FitsCudnn(scale_) && FitsCudnn(shift_) && FitsCudnn(mean) && FitsCudnn(variance))) {
    // LibTorch 2.11 chooses cuDNN whatever its argument `cudnn_enabled` is.
    return std::get<0>(
        at::native_batch_norm(images, scale_, shift_, mean, variance, training, kBatchNormMomentum, kBatchNormEpsilon));
  }
  return at::batch_norm(images, scale_, shift_, mean, variance, training, kBatchNormMomentum, kBatchNormEpsilon,
                        /*cudnn_enabled=*/true);
}

void BatchNorm::Fill() {
  scale_.fill_(1);
  shift_.fill_(0);
  mean_->agreed.fill_(0);
  variance_->agreed.fill_(1);
}

LayerNorm::LayerNorm(const FlatTensors& tensors, const std::string& name)
    : scale_(tensors.Trained(name + ".weight")),
      shift_(tensors.Trained(name + ".bias")),
      gate_(tensors, {name + ".weight", name + ".bias"}) {}

at::Tensor LayerNorm::operator()(const at::Tensor& rows) const {
  gate_.Pass();
  return at::layer_norm(rows, scale_.sizes(), scale_, shift_, kLayerNormEpsilon);
}

void LayerNorm::Fill() {
  scale_.fill_(1);
  shift_.fill_(0);
}

}  // namespace slackline::worker

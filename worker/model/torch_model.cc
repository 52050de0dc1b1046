// The one file of the worker that knows LibTorch. Its exceptions end here.
//
// Copies: batch -> network: 0 (with one channel); backward -> push(): 0; parameters() -> network: 0.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/model/layout.h"
#include "worker/model/model.h"

namespace slackline::worker {
namespace {

// Runs `body`, which returns a Status or StatusOr, and turns what LibTorch throws into kInternal.
template <typename Body>
auto Guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
}

// A convolution or a fully connected layer.
struct Weighted {
  at::Tensor weight;
  at::Tensor bias;
};

// The scale and shift are trained; the statistics exist twice: the values that everybody agreed on, in parameters(),
// and this worker's new ones, in push().
struct BatchNorm {
  Weighted affine;
  at::Tensor agreed_mean, agreed_variance;
  at::Tensor pushed_mean, pushed_variance;
};

// PyTorch's defaults.
constexpr double kBatchNormMomentum = 0.1;
constexpr double kBatchNormEpsilon = 1e-5;

enum class Mode { kTraining, kEvaluation };

class TorchModel final : public Model {
 public:
  TorchModel(const ModelSpec& spec, Layout layout);

  // Fills the weights as PyTorch's layers do by default, in the order in which a module would create them.
  void Initialise(uint64_t seed);

  const std::vector<TensorInfo>& tensors() const override { return layout_.tensors; }
  uint64_t elements() const override { return layout_.elements; }
  uint64_t trained_elements() const override { return layout_.trained_elements; }
  absl::Span<float> parameters() override { return Flat(parameters_); }
  absl::Span<float> push() override { return Flat(push_); }
  void UsePush(absl::Span<float> memory) override;
  absl::StatusOr<StepResult> Step(const BatchView& batch) override;
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override;

 private:
  absl::Status Check(const BatchView& batch) const;
  static absl::Span<float> Flat(const at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
  }
  at::Tensor View(const at::Tensor& flat, const std::string& name) const;
  Weighted TrainedPair(const std::string& layer);
  at::Tensor Trained(const std::string& name);
  at::Tensor Images(const BatchView& batch) const;
  at::Tensor Normalise(const at::Tensor& images, const BatchNorm& norm, Mode mode) const;
  at::Tensor Forward(const BatchView& batch, Mode mode) const;
  StepResult Score(const at::Tensor& logits, const at::Tensor& loss, const BatchView& batch,
                   absl::Span<int64_t> predictions) const;

  const ModelSpec spec_;
  const Layout layout_;
  std::map<std::string, TensorInfo> by_name_;
  // The tensors below are views into these two, which LibTorch allocates as its kernels like it: on cache lines.
  const at::Tensor parameters_;
  at::Tensor push_;
  std::vector<Weighted> convolutions_;
  std::vector<BatchNorm> norms_;  // one a convolution, or none
  std::vector<Weighted> linears_;
};

TorchModel::TorchModel(const ModelSpec& spec, Layout layout)
    : spec_(spec),
      layout_(std::move(layout)),
      parameters_(at::zeros(layout_.elements)),
      push_(at::zeros(layout_.elements)) {
  for (const TensorInfo& tensor : layout_.tensors) by_name_[tensor.name] = tensor;
  for (size_t i = 1; i <= layout_.convolutions.size(); ++i) {
    convolutions_.push_back(TrainedPair(absl::StrCat("conv", i)));
    if (!spec_.batch_norm) continue;
    const std::string norm = absl::StrCat("bn", i);
    norms_.push_back({.affine = TrainedPair(norm),
                      .agreed_mean = View(parameters_, norm + ".running_mean"),
                      .agreed_variance = View(parameters_, norm + ".running_var"),
                      .pushed_mean = View(push_, norm + ".running_mean"),
                      .pushed_variance = View(push_, norm + ".running_var")});
  }
  for (size_t i = 1; i <= layout_.linears.size(); ++i) linears_.push_back(TrainedPair(absl::StrCat("fc", i)));
}

at::Tensor TorchModel::View(const at::Tensor& flat, const std::string& name) const {
  const TensorInfo& tensor = by_name_.at(name);
  const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  return at::from_blob(flat.data_ptr<float>() + tensor.offset, shape, at::kFloat);
}

// A leaf whose gradient is a view too: backward adds to it in place.
at::Tensor TorchModel::Trained(const std::string& name) {
  at::Tensor tensor = View(parameters_, name);
  tensor.set_requires_grad(true);
  tensor.mutable_grad() = View(push_, name);
  return tensor;
}

void TorchModel::UsePush(absl::Span<float> memory) {
  SLACKLINE_CHECK(memory.size() == layout_.elements);
  if (memory.data() == push_.data_ptr<float>()) return;
  push_ = at::from_blob(memory.data(), {static_cast<int64_t>(memory.size())}, at::kFloat);
  const auto point = [this](const std::string& layer, Weighted& pair) {
    pair.weight.mutable_grad() = View(push_, layer + ".weight");
    pair.bias.mutable_grad() = View(push_, layer + ".bias");
  };
  for (size_t i = 0; i < convolutions_.size(); ++i) point(absl::StrCat("conv", i + 1), convolutions_[i]);
  for (size_t i = 0; i < linears_.size(); ++i) point(absl::StrCat("fc", i + 1), linears_[i]);
  for (size_t i = 0; i < norms_.size(); ++i) {
    const std::string norm = absl::StrCat("bn", i + 1);
    point(norm, norms_[i].affine);
    norms_[i].pushed_mean = View(push_, norm + ".running_mean");
    norms_[i].pushed_variance = View(push_, norm + ".running_var");
  }
}

Weighted TorchModel::TrainedPair(const std::string& layer) {
  return {.weight = Trained(layer + ".weight"), .bias = Trained(layer + ".bias")};
}

void TorchModel::Initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto fill = [&generator](Weighted& layer) {
    // kaiming_uniform_ with a = sqrt(5), the default of nn.Linear and nn.Conv2d, comes down to this bound.
    const double bound = 1 / std::sqrt(static_cast<double>(layer.weight[0].numel()));
    layer.weight.uniform_(-bound, bound, generator);
    layer.bias.uniform_(-bound, bound, generator);
  };
  for (Weighted& layer : convolutions_) fill(layer);
  for (Weighted& layer : linears_) fill(layer);
  for (BatchNorm& norm : norms_) {
    norm.affine.weight.fill_(1);
    norm.agreed_variance.fill_(1);
  }
}

absl::Status TorchModel::Check(const BatchView& batch) const {
  const uint64_t pixels = batch.labels.size() * spec_.channels * spec_.height * spec_.width;
  if (batch.labels.empty() || batch.images.size() != pixels) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.labels.size(), " labels has ",
                                                   batch.images.size(), " pixels; it must have ", pixels,
                                                   " and at least one label"));
  }
  for (int64_t label : batch.labels) {
    if (label < 0 || label >= spec_.classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " is not below the model's ", spec_.classes, " classes"));
    }
  }
  return absl::OkStatus();
}

// Channels last: pooling and its gradient are then vectorised, which makes a step of the cnn 1.7 times as fast. With
// one channel both orders are the same memory, but LibTorch must be told by strides which one it is.
at::Tensor TorchModel::Images(const BatchView& batch) const {
  const int64_t count = batch.labels.size(), channels = spec_.channels, height = spec_.height, width = spec_.width;
  auto* pixels = const_cast<float*>(batch.images.data());
  if (channels == 1) {
    return at::from_blob(pixels, {count, 1, height, width}, {height * width, 1, width, 1}, at::kFloat);
  }
  return at::from_blob(pixels, {count, channels, height, width}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
}

// Training normalises with the batch's own statistics and moves the copy in push(); the agreed values stay.
at::Tensor TorchModel::Normalise(const at::Tensor& images, const BatchNorm& norm, Mode mode) const {
  const bool training = mode == Mode::kTraining;
  return at::batch_norm(images, norm.affine.weight, norm.affine.bias, training ? norm.pushed_mean : norm.agreed_mean,
                        training ? norm.pushed_variance : norm.agreed_variance, training, kBatchNormMomentum,
                        kBatchNormEpsilon, /*cudnn_enabled=*/false);
}

at::Tensor TorchModel::Forward(const BatchView& batch, Mode mode) const {
  at::Tensor x = Images(batch);
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    x = at::conv2d(x, convolutions_[i].weight, convolutions_[i].bias, /*stride=*/1, /*padding=*/kWindow / 2);
    if (!norms_.empty()) x = Normalise(x, norms_[i], mode);
    // ReLU never changes which of four values is largest, so it may follow the pooling, where it is a quarter of work.
    x = at::max_pool2d(x, kPooling).relu_();
  }
  x = x.flatten(1);
  for (size_t i = 0; i < linears_.size(); ++i) {
    x = at::linear(x, linears_[i].weight, linears_[i].bias);
    if (i + 1 < linears_.size()) x.relu_();
  }
  return x;
}

StepResult TorchModel::Score(const at::Tensor& logits, const at::Tensor& loss, const BatchView& batch,
                             absl::Span<int64_t> predictions) const {
  const at::Tensor rows = logits.contiguous();
  const float* row = rows.const_data_ptr<float>();
  StepResult result{.samples = batch.labels.size(), .loss = loss.item<float>(), .correct = 0};
  for (size_t i = 0; i < batch.labels.size(); ++i, row += spec_.classes) {
    const int64_t predicted = std::max_element(row, row + spec_.classes) - row;
    if (predicted == batch.labels[i]) ++result.correct;
    if (!predictions.empty()) predictions[i] = predicted;
  }
  return result;
}

at::Tensor Loss(const at::Tensor& logits, const BatchView& batch) {
  const auto count = static_cast<int64_t>(batch.labels.size());
  return at::cross_entropy_loss(logits, at::from_blob(const_cast<int64_t*>(batch.labels.data()), {count}, at::kLong));
}

absl::StatusOr<StepResult> TorchModel::Step(const BatchView& batch) {
  if (absl::Status status = Check(batch); !status.ok()) return status;
  return Guarded([&]() -> absl::StatusOr<StepResult> {
    const auto buffers = static_cast<std::ptrdiff_t>(layout_.trained_elements);
    std::fill(push().begin(), push().begin() + buffers, 0.0f);
    std::copy(parameters().begin() + buffers, parameters().end(), push().begin() + buffers);
    const at::Tensor logits = Forward(batch, Mode::kTraining);
    const at::Tensor loss = Loss(logits, batch);
    loss.backward();
    return Score(logits.detach(), loss.detach(), batch, {});
  });
}

absl::StatusOr<StepResult> TorchModel::Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) {
  if (absl::Status status = Check(batch); !status.ok()) return status;
  if (predictions.size() != batch.labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is room for ", predictions.size(), " predictions of ", batch.labels.size(), " images"));
  }
  return Guarded([&]() -> absl::StatusOr<StepResult> {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = Forward(batch, Mode::kEvaluation);
    return Score(logits, Loss(logits, batch), batch, predictions);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const ModelSpec& spec, uint64_t seed) {
  absl::StatusOr<Layout> layout = MakeLayout(spec);
  if (!layout.ok()) return layout.status();
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    auto model = std::make_unique<TorchModel>(spec, *std::move(layout));
    model->Initialise(seed);
    return model;
  });
}

void SetComputeThreads(uint32_t threads) { at::set_num_threads(static_cast<int>(std::max(threads, uint32_t{1}))); }

std::string LibTorchVersion() { return TORCH_VERSION; }

}  // namespace slackline::worker

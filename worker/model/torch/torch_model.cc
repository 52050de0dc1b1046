// Model on LibTorch: memory, steps and scores; the network itself is behind network.h. LibTorch's exceptions end here.
//
// Copies: batch -> network: 1; backward -> push(): 1;
//         parameters() -> network: 0.
// Of GPUs it knows what LibTorch says of all devices, and so compiles with any build of it.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/layout.h"
#include "worker/model/losses/training_loss.h"
#include "worker/model/model.h"
#include "worker/model/networks/autocast.h"
#include "worker/model/networks/flat_tensors.h"
#include "worker/model/networks/initialise.h"
#include "worker/model/networks/label_free_network.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/noise.h"
#include "worker/model/networks/scripted_network.h"
#include "worker/model/torch/backward_watch.h"
#include "worker/model/torch/batch_copies.h"
#include "worker/model/torch/graph_recorder.h"
#include "worker/model/torch/missing_gradients.h"
#include "worker/model/torch/recorded_step.h"
#include "worker/model/torch/score.h"

namespace slackline::worker {
namespace {

// Runs `body`, which returns a Status or StatusOr, and turns what LibTorch throws into kInternal.
template <typename Body>
auto Guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const ArrivalFailed& failed) {
    return failed.status();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
}

absl::Status AwaitAll(Arrival* arrival) { return arrival != nullptr ? arrival->AwaitAll() : absl::OkStatus(); }

at::Device ToTorch(const Device& device) {
  if (device.kind == Device::Kind::kCpu) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

class TorchModel final : public Model {
 public:
  TorchModel(const ModelSpec& spec, Layout layout, at::Device device)
      : spec_(spec),
        layout_(std::move(layout)),
        device_(device),
        tensors_(layout_, device_),
        watch_(layout_, tensors_),
        network_(MakeNetwork(spec_, tensors_)),
        label_free_(dynamic_cast<LabelFreeNetwork*>(network_.get())),
        loss_(spec_, device_),
        copies_(device_),
        noise_(device_) {}

  void Initialise(uint64_t seed);

  const std::vector<TensorInfo>& tensors() const override { return layout_.tensors; }
  uint64_t elements() const override { return layout_.elements; }
  uint64_t trained_elements() const override { return layout_.trained_elements; }
  absl::Span<float> parameters() override { return tensors_.parameters(); }
  absl::Span<float> push() override { return tensors_.push(); }
  void UsePush(absl::Span<float> memory) override { tensors_.UsePush(memory); }
  void UseParameters(absl::Span<float> memory) override { tensors_.UseParameters(memory); }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override;
  absl::Status RecordSteps(std::unique_ptr<StepRecorder> recorder) override;
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override;
  bool counts_correct() const override { return !has_own_loss(); }
  absl::StatusOr<std::vector<images::DetectedObjects>> Detect(absl::Span<const images::Scene> scenes) override;
  void Forget() override;
  absl::Status Remember(const BatchView& batch) override;
  absl::Span<const float> teacher() const override;
  absl::Status MoveTeacher() override;
  absl::Status SetTeacher(absl::Span<const float> parameters) override;
  void* stream() const override;

 private:
  // What is frozen is drawn in its turn, although it lies last.
  Layout OrderOfDraws() const;
  absl::Status Check(const BatchView& batch, uint64_t views = 1) const;
  absl::Status CheckScenes(absl::Span<const images::Scene> scenes) const;
  // While it lives, this thread's device is the model's.
  c10::OptionalDeviceGuard OnDevice() const;
  // On the device, or on their way to it.
  at::Tensor Images(const BatchView& batch);
  at::Tensor ImagesIn(absl::Span<const float> floats);
  at::Tensor Targets(const BatchView& batch);
  // `body` on this model's device, and on the stream of what it records, if it does: weights come on that one. When it
  // returns, whatever has happened, the device does not read the batch any more.
  template <typename Body>
  auto OnStream(Body&& body) -> decltype(body());
  absl::StatusOr<StepResult> StepOnStream(const BatchView& batch, const Ready& ready);
  // A step of images and labels, without gradients in the outputs.
  struct Order {
    float loss_scale = 1;
    Arrival* arrival = nullptr;
  };
  RecordedStep::Outputs Pass(const RecordedStep::Inputs& inputs, const Order& order, const Ready& ready);
  RecordedStep::Outputs PassScenes(absl::Span<const images::Scene> scenes, const Order& order, const Ready& ready);
  // Outputs in training, or the loss that the network has computed by itself, in float32.
  at::Tensor Forward(const RecordedStep::Inputs& inputs);
  RecordedStep::Outputs Backward(const at::Tensor& made, const at::Tensor& loss, const Order& order,
                                 const Ready& ready);
  bool has_own_loss() const { return spec_.loss == LossKind::kModel || label_free_ != nullptr; }

  const ModelSpec spec_;
  const Layout layout_;
  const at::Device device_;
  FlatTensors tensors_;
  BackwardWatch watch_;
  const std::unique_ptr<Network> network_;
  LabelFreeNetwork* const label_free_;  // network_, if it is one
  const TrainingLoss loss_;
  BatchCopies copies_;
  Noise noise_;
  std::unique_ptr<RecordedStep> recorded_;  // null: steps are not recorded
  uint64_t seed_ = 0;
};

Layout TorchModel::OrderOfDraws() const {
  if (spec_.groups.empty() || spec_.init.kind == Initialisation::Kind::kReference) return layout_;
  SLACKLINE_CHECK(FactsOf(spec_.kind).built_in());  // its weights begin as they are in its file
  ModelSpec spec = spec_;
  spec.groups.clear();
  return *MakeLayout(spec);
}

void TorchModel::Initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  seed_ = seed;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  if (device_.is_cpu()) {
    network_->Initialise(generator);
    return Reinitialise(spec_.init, OrderOfDraws(), tensors_, generator);
  }
  // A GPU would draw other numbers.
  FlatTensors drawn(layout_);
  MakeNetwork(spec_, drawn)->Initialise(generator);
  Reinitialise(spec_.init, OrderOfDraws(), drawn, generator);
  tensors_.CopyParameters(drawn);
}

c10::OptionalDeviceGuard TorchModel::OnDevice() const {
  return device_.is_cpu() ? c10::OptionalDeviceGuard() : c10::OptionalDeviceGuard(device_);
}

template <typename Body>
auto TorchModel::OnStream(Body&& body) -> decltype(body()) {
  return Guarded([&]() -> decltype(body()) {
    const c10::OptionalDeviceGuard guard = OnDevice();
    const BatchCopies::Scope read(copies_);
    if (recorded_ == nullptr) return body();
    std::optional<decltype(body())> result;
    recorded_->recorder().OnStream([&] { result = body(); });
    return *std::move(result);
  });
}

void* TorchModel::stream() const {
  if (recorded_ != nullptr) return recorded_->recorder().stream();
  if (device_.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
}

absl::Status TorchModel::CheckScenes(absl::Span<const images::Scene> scenes) const {
  if (spec_.loss != LossKind::kModel) {
    return absl::InvalidArgumentError("there are images with objects; only a model with a loss of its own takes them");
  }
  for (const images::Scene& scene : scenes) {
    if (absl::Status status = images::CheckScene(scene, spec_.classes); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TorchModel::Check(const BatchView& batch, uint64_t views) const {
  if (!batch.scenes.empty() && batch.scenes.size() == batch.labels.size()) return CheckScenes(batch.scenes);
  const uint64_t one_view = batch.labels.size() * spec_.channels * spec_.height * spec_.width;
  const uint64_t pixels = (views - 1) * (batch.view_stride > 0 ? batch.view_stride : one_view) + one_view;
  if (batch.labels.empty() || batch.images.size() != pixels) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.labels.size(), " labels has ",
                                                   batch.images.size(), " pixels; it must have ", pixels,
                                                   " and at least one label"));
  }
  return CheckTargets(batch, spec_.classes);
}

// Channels last: pooling and its gradient are then vectorised, which makes a step of the cnn 1.7 times as fast. With
// one channel both orders are the same memory, but LibTorch must be told by strides which one it is.
at::Tensor TorchModel::ImagesIn(absl::Span<const float> floats) {
  const int64_t channels = spec_.channels, height = spec_.height, width = spec_.width;
  const int64_t count = static_cast<int64_t>(floats.size()) / (channels * height * width);
  auto* pixels = const_cast<float*>(floats.data());
  // Libraries for matrices may sum in another order where memory lies otherwise.
  const auto given = [&](at::IntArrayRef sizes, at::IntArrayRef strides) {
    const at::Tensor images = at::from_blob(pixels, sizes, strides, at::kFloat);
    return device_.is_cpu() ? images.clone() : copies_.ToDevice(images);
  };
  if (channels == 1 && spec_.channels_last) {
    return given({count, 1, height, width}, {height * width, 1, width, 1});
  }
  const at::Tensor images =
      given({count, channels, height, width}, {channels * height * width, height * width, width, 1});
  return spec_.channels_last ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
}

at::Tensor TorchModel::Images(const BatchView& batch) {
  if (batch.view_stride == 0) return ImagesIn(batch.images);
  const size_t one_view = batch.labels.size() * spec_.channels * spec_.height * spec_.width;
  std::vector<at::Tensor> views;
  for (size_t begin = 0; begin < batch.images.size(); begin += batch.view_stride) {
    views.push_back(ImagesIn(batch.images.subspan(begin, one_view)));
  }
  return at::cat(views);
}

at::Tensor TorchModel::Targets(const BatchView& batch) { return copies_.ToDevice(TargetsOf(batch, spec_.classes)); }

at::Tensor TorchModel::Forward(const RecordedStep::Inputs& inputs) {
  const Autocast autocast(device_, spec_.precision);
  return network_->Train(inputs.images, inputs.targets, noise_).to(at::kFloat);
}

RecordedStep::Outputs TorchModel::Pass(const RecordedStep::Inputs& inputs, const Order& order, const Ready& ready) {
  tensors_.Begin(order.loss_scale);
  const at::Tensor made = Forward(inputs);
  return Backward(made, has_own_loss() ? made : loss_.Mean(made, inputs.targets), order, ready);
}

RecordedStep::Outputs TorchModel::PassScenes(absl::Span<const images::Scene> scenes, const Order& order,
                                             const Ready& ready) {
  tensors_.Begin(order.loss_scale);
  const at::Tensor loss = network_->TrainScenes(scenes).to(at::kFloat);
  return Backward(loss, loss, order, ready);
}

RecordedStep::Outputs TorchModel::Backward(const at::Tensor& made, const at::Tensor& loss, const Order& order,
                                           const Ready& ready) {
  if (absl::Status all = AwaitAll(order.arrival); !all.ok()) throw ArrivalFailed(std::move(all));
  const MissingGradients refused;
  watch_.Begin(ready);
  (order.loss_scale == 1 ? loss : loss * order.loss_scale).backward();
  watch_.End();
  return {.made = made.detach(), .loss = loss.detach()};
}

absl::StatusOr<StepResult> TorchModel::StepOnStream(const BatchView& batch, const Ready& ready) {
  // Averaged buffers are copied before forward, and lie behind all else, as do frozen tensors; a module of the user's
  // does not wait by itself, nor what is recorded.
  const bool by_layer = elements() == trained_elements() && FactsOf(spec_.kind).built_in() && recorded_ == nullptr;
  const Order order = {.loss_scale = batch.loss_scale, .arrival = by_layer ? batch.arrival : nullptr};
  if (absl::Status all = AwaitAll(by_layer ? nullptr : batch.arrival); !all.ok()) return all;
  const FlatTensors::Arriving arriving(tensors_, order.arrival);
  noise_.Begin(Mode::kTraining, {.model = seed_, .batch = batch.noise});
  RecordedStep::Outputs outputs;
  if (!batch.scenes.empty()) {
    outputs = PassScenes(batch.scenes, order, ready);
  } else {
    const RecordedStep::Inputs inputs = {.images = Images(batch), .targets = Targets(batch)};
    const RecordedStep::Setting setting = {
        .loss_scale = order.loss_scale, .parameters = parameters().data(), .push = push().data()};
    if (recorded_ != nullptr && recorded_->Takes(inputs, setting)) {
      outputs = recorded_->Run(inputs, setting, [this, order](const RecordedStep::Inputs& given) {
        return Pass(given, order, [](uint64_t) {});
      });
      ready(0);
    } else {
      outputs = Pass(inputs, order, ready);
    }
  }
  if (has_own_loss()) return StepResult{.samples = batch.labels.size(), .loss = outputs.loss.item<float>()};
  return ScoreOf(outputs.made, outputs.loss, batch);
}

absl::StatusOr<StepResult> TorchModel::Step(const BatchView& batch, const Ready& ready) {
  const uint64_t views = label_free_ != nullptr ? spec_.self_supervised.views : 1;
  if (absl::Status status = Check(batch, views); !status.ok()) return status;
  return OnStream([&] { return StepOnStream(batch, ready); });
}

absl::Status TorchModel::RecordSteps(std::unique_ptr<StepRecorder> recorder) {
  if (absl::Status can = CheckRecordable(spec_); !can.ok()) return can;
  recorded_ = std::make_unique<RecordedStep>(std::move(recorder));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TorchModel::Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) {
  if (absl::Status status = Check(batch); !status.ok()) return status;
  if (predictions.size() != batch.labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is room for ", predictions.size(), " predictions of ", batch.labels.size(), " images"));
  }
  if (label_free_ != nullptr && !label_free_->remembers()) {
    return absl::FailedPreconditionError("no image is remembered whose neighbours could be classified");
  }
  return OnStream([&]() -> absl::StatusOr<StepResult> {
    const at::NoGradGuard no_grad;
    noise_.Begin(Mode::kEvaluation, {});
    const at::Tensor outputs = network_->Forward(Images(batch), Mode::kEvaluation, noise_), targets = Targets(batch);
    const at::Tensor loss =
        label_free_ != nullptr ? LabelFreeNetwork::Missed(outputs, targets) : loss_.Plain(outputs, targets);
    return ScoreOf(outputs, loss, batch, predictions);
  });
}

absl::StatusOr<std::vector<images::DetectedObjects>> TorchModel::Detect(absl::Span<const images::Scene> scenes) {
  if (absl::Status status = CheckScenes(scenes); !status.ok()) return status;
  return OnStream([&]() -> absl::StatusOr<std::vector<images::DetectedObjects>> {
    const at::NoGradGuard no_grad;
    return network_->Detect(scenes);
  });
}

void TorchModel::Forget() {
  if (label_free_ != nullptr) label_free_->Forget();
}

absl::Status TorchModel::Remember(const BatchView& batch) {
  if (label_free_ == nullptr) return Model::Remember(batch);
  if (absl::Status status = Check(batch); !status.ok()) return status;
  return OnStream([&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    noise_.Begin(Mode::kEvaluation, {});
    label_free_->Remember(Images(batch), Targets(batch), noise_);
    return absl::OkStatus();
  });
}

absl::Span<const float> TorchModel::teacher() const {
  return label_free_ != nullptr ? label_free_->teacher() : absl::Span<const float>();
}

absl::Status TorchModel::MoveTeacher() {
  if (label_free_ == nullptr) return absl::OkStatus();
  return OnStream([&]() -> absl::Status {
    label_free_->MoveTeacher();
    return absl::OkStatus();
  });
}

absl::Status TorchModel::SetTeacher(absl::Span<const float> parameters) {
  if (label_free_ == nullptr) return absl::OkStatus();
  return OnStream([&]() -> absl::Status {
    label_free_->SetTeacher(parameters);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const ModelSpec& spec, uint64_t seed, const Device& device) {
  absl::StatusOr<Layout> layout = FactsOf(spec.kind).built_in() ? MakeLayout(spec) : MakeScriptedLayout(spec);
  if (!layout.ok()) return layout.status();
  return Guarded([&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    if (absl::Status can = CheckPrecision(ToTorch(device), spec.precision); !can.ok()) return can;
    if (spec.cudnn_benchmark) at::globalContext().setBenchmarkCuDNN(true);
    std::unique_ptr<TorchModel> model;
    const auto make = [&] {
      model = std::make_unique<TorchModel>(spec, *std::move(layout), ToTorch(device));
      model->Initialise(seed);
    };
    if (!spec.cuda_graphs || device.kind == Device::Kind::kCpu) {
      make();
      return model;
    }
    absl::StatusOr<std::unique_ptr<StepRecorder>> recorder = MakeGraphRecorder(ToTorch(device));
    if (!recorder.ok()) return recorder.status();
    // LibTorch remembers on which stream a tensor first needed a gradient.
    (*recorder)->OnStream(make);
    if (absl::Status can = model->RecordSteps(*std::move(recorder)); !can.ok()) return can;
    return model;
  });
}

void SetComputeThreads(uint32_t threads) { at::set_num_threads(static_cast<int>(std::max(threads, uint32_t{1}))); }

std::string LibTorchVersion() { return TORCH_VERSION; }

}  // namespace slackline::worker

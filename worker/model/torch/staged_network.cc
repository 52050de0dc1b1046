#include "worker/model/torch/staged_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/layout.h"
#include "worker/model/losses/training_loss.h"
#include "worker/model/networks/autocast.h"
#include "worker/model/networks/flat_tensors.h"
#include "worker/model/networks/network.h"
#include "worker/model/stage_plan.h"
#include "worker/model/torch/score.h"

namespace slackline::worker {
namespace {

// What LibTorch throws becomes kInternal.
template <typename Body>
absl::Status StageGuarded(Body&& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
}

// The tensors of a run of layers, as a layout of their own; where it begins in the whole.
struct PartLayout {
  Layout layout;
  uint64_t begin = 0;
};

PartLayout PartOf(const Layout& whole, const std::vector<LayerPlan>& layers, const LayerRange& range) {
  size_t first = 0, count = 0;
  for (size_t i = 0; i < range.end; ++i) (i < range.begin ? first : count) += layers[i].tensors;
  PartLayout part = {.layout = {}, .begin = whole.tensors[first].offset};
  for (size_t i = first; i < first + count; ++i) {
    TensorInfo tensor = whole.tensors[i];
    tensor.offset -= part.begin;
    part.layout.elements = tensor.offset + tensor.elements();
    part.layout.tensors.push_back(std::move(tensor));
  }
  part.layout.trained_elements = part.layout.elements;
  return part;
}

// A micro-batch in one stage, from its Forward() to its Backward().
struct Passing {
  at::Tensor input;   // a leaf: its gradient goes to the stage before
  at::Tensor output;  // of the last stage, the loss
  StageStreams::Point forward;
  StageStreams::Point backward;
};

class StagedNetwork final : public StagedModel {
 public:
  StagedNetwork(const ModelSpec& spec, std::unique_ptr<Model> whole, std::unique_ptr<StageStreams> streams,
                const Pin& pin)
      : spec_(spec), whole_(std::move(whole)), streams_(std::move(streams)), pin_(pin) {}
  ~StagedNetwork() override;

  // Requires: CutModel() gave the cuts.
  void Build(const Layout& layout, const std::vector<size_t>& cuts);

  const std::vector<TensorInfo>& tensors() const override { return whole_->tensors(); }
  uint64_t elements() const override { return whole_->elements(); }
  uint64_t trained_elements() const override { return whole_->trained_elements(); }
  absl::Span<float> parameters() override { return whole_->parameters(); }
  absl::Span<float> push() override { return whole_->push(); }
  void UsePush(absl::Span<float> memory) override;
  void UseParameters(absl::Span<float> memory) override;
  // All in this thread, one stage behind the other.
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override;
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override;

  size_t stages() const override { return streams_->stages(); }
  absl::Status BeginStep(const BatchView& batch, size_t micro_batches) override;
  absl::Status Forward(size_t stage, size_t micro_batch) override;
  absl::Status Backward(size_t stage, size_t micro_batch) override;
  absl::StatusOr<uint64_t> EndStage(size_t stage) override;
  void DropStage(size_t stage) override;
  StepResult result() const override { return result_; }

 private:
  struct Stage {
    PartLayout part;
    // On a CPU in the host's memory, which is whole_'s.
    std::unique_ptr<FlatTensors> tensors;
    std::unique_ptr<Network> network;
    std::unique_ptr<Noise> noise;

    absl::Span<float> Of(absl::Span<float> whole) const { return whole.subspan(part.begin, part.layout.elements); }
  };

  bool IsLast(size_t stage) const { return stage + 1 == stages(); }
  absl::Status Check(const BatchView& batch) const;
  // As TorchModel has them; for the first stage.
  at::Tensor Images(const BatchView& part) const;
  at::Tensor Compute(size_t stage, const at::Tensor& input, Mode mode) const;
  // Host to device, and back; on the stage's stream.
  void Upload(Stage& stage);
  void Download(Stage& stage);
  // Until the device is no further behind the host than it may be.
  void AwaitDevice(size_t stage, size_t micro_batch);
  // Of the last stage.
  void TakeTargets();
  at::Tensor Loss(const at::Tensor& outputs, size_t micro_batch);
  void CountUp();

  const ModelSpec spec_;
  const std::unique_ptr<Model> whole_;
  const std::unique_ptr<StageStreams> streams_;
  const Pin pin_;
  std::vector<Stage> stages_;
  std::unique_ptr<TrainingLoss> loss_;  // on the last device
  // Of the step.
  BatchView batch_;
  std::vector<BatchView> parts_;
  std::vector<std::vector<Passing>> passing_;                // by stage and micro-batch
  std::vector<std::vector<StageStreams::Point>> backwards_;  // the same; each stage's thread has its own
  StepResult result_;
  // Of the last stage: of the whole batch, on its device.
  at::Tensor targets_;
  at::Tensor labels_;
  at::Tensor losses_;   // the sum so far, of sums
  at::Tensor correct_;  // images so far
};

StagedNetwork::~StagedNetwork() {
  for (size_t i = 0; i < stages_.size(); ++i) DropStage(i);
}

void StagedNetwork::Build(const Layout& layout, const std::vector<size_t>& cuts) {
  const std::vector<LayerPlan> layers = LayersOf(spec_);
  for (size_t i = 0; i < stages(); ++i) {
    const LayerRange range = {.begin = cuts[i], .end = cuts[i + 1]};
    Stage& stage = stages_.emplace_back();
    stage.part = PartOf(layout, layers, range);
    // LibTorch remembers on which stream a tensor first needed a gradient.
    streams_->Compute(i, [&] {
      stage.tensors = std::make_unique<FlatTensors>(stage.part.layout, streams_->device(i));
      stage.network = MakePart(spec_, *stage.tensors, range);
      stage.noise = std::make_unique<Noise>(streams_->device(i));
      stage.noise->Begin(Mode::kEvaluation, {});
      if (IsLast(i)) loss_ = std::make_unique<TrainingLoss>(spec_, streams_->device(i));
    });
  }
  if (!streams_->on_host()) return;
  UseParameters(whole_->parameters());
  UsePush(whole_->push());
}

void StagedNetwork::UsePush(absl::Span<float> memory) {
  whole_->UsePush(memory);
  if (!streams_->on_host()) return pin_ ? pin_(memory) : void();
  for (Stage& stage : stages_) stage.tensors->UsePush(stage.Of(memory));
}

void StagedNetwork::UseParameters(absl::Span<float> memory) {
  whole_->UseParameters(memory);
  if (!streams_->on_host()) return pin_ ? pin_(memory) : void();
  for (Stage& stage : stages_) stage.tensors->UseParameters(stage.Of(memory));
}

void StagedNetwork::Upload(Stage& stage) {
  if (!streams_->on_host()) stage.tensors->WriteParameters(stage.Of(whole_->parameters()));
}

void StagedNetwork::Download(Stage& stage) {
  if (!streams_->on_host()) stage.tensors->ReadPush(stage.Of(whole_->push()));
}

absl::Status StagedNetwork::Check(const BatchView& batch) const {
  const uint64_t count = batch.labels.size(), pixels = uint64_t{spec_.channels} * spec_.height * spec_.width;
  if (count == 0 || batch.images.size() != count * pixels) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", count, " labels has ", batch.images.size(),
                                                   " pixels; it must have ", count * pixels,
                                                   " and at least one label"));
  }
  return CheckTargets(batch, spec_.classes);
}

absl::Status StagedNetwork::BeginStep(const BatchView& batch, size_t micro_batches) {
  if (absl::Status status = Check(batch); !status.ok()) return status;
  const size_t count = batch.labels.size(), pixels = batch.images.size() / count;
  if (micro_batches == 0 || count < micro_batches) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", count, " images cannot be cut into ", micro_batches, " parts"));
  }
  batch_ = batch;
  parts_.clear();
  for (size_t i = 0, begin = 0; i < micro_batches; ++i) {
    const size_t size = count / micro_batches + (i < count % micro_batches ? 1 : 0);
    BatchView part = batch;
    part.images = batch.images.subspan(begin * pixels, size * pixels);
    part.labels = batch.labels.subspan(begin, size);
    if (!batch.other_labels.empty()) part.other_labels = batch.other_labels.subspan(begin, size);
    parts_.push_back(part);
    begin += size;
  }
  passing_.assign(stages(), std::vector<Passing>(micro_batches));
  backwards_.assign(stages(), std::vector<StageStreams::Point>(micro_batches));
  for (Stage& stage : stages_) stage.tensors->Begin();
  return absl::OkStatus();
}

at::Tensor StagedNetwork::Images(const BatchView& part) const {
  const int64_t count = part.labels.size(), channels = spec_.channels, height = spec_.height, width = spec_.width;
  auto* pixels = const_cast<float*>(part.images.data());
  const std::vector<int64_t> sizes = {count, channels, height, width};
  if (channels == 1 && spec_.channels_last) {
    return at::from_blob(pixels, sizes, {height * width, 1, width, 1}, at::kFloat)
        .to(streams_->device(0), /*non_blocking=*/true);
  }
  const at::Tensor images = at::from_blob(pixels, sizes, at::kFloat).to(streams_->device(0), /*non_blocking=*/true);
  return spec_.channels_last ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
}

at::Tensor StagedNetwork::Compute(size_t stage, const at::Tensor& input, Mode mode) const {
  const Stage& own = stages_[stage];
  const Autocast autocast(streams_->device(stage), mode == Mode::kTraining ? spec_.precision : Precision::kFloat32);
  return own.network->Forward(input, mode, *own.noise);
}

absl::Status StagedNetwork::Forward(size_t stage, size_t micro_batch) {
  return StageGuarded([&] {
    Passing& passing = passing_[stage][micro_batch];
    AwaitDevice(stage, micro_batch);
    // From memory that is not pinned the host waits for it: before the stage waits for the others.
    if (IsLast(stage) && micro_batch == 0) streams_->Compute(stage, [&] { TakeTargets(); });
    if (stage > 0) {
      const Passing& before = passing_[stage - 1][micro_batch];
      passing.input = streams_->Take(before.output, {.from = stage - 1, .to = stage}, before.forward);
    }
    streams_->Compute(stage, [&] {
      if (micro_batch == 0) {
        Upload(stages_[stage]);
        stages_[stage].tensors->AccumulateInPush();
      }
      if (stage == 0) {
        passing.input = Images(parts_[micro_batch]);
      } else {
        passing.input.set_requires_grad(true);
      }
      passing.output = Compute(stage, passing.input, Mode::kTraining);
      if (IsLast(stage)) passing.output = Loss(passing.output, micro_batch);
    });
    passing.forward = streams_->Given(stage);
  });
}

// One more than 1F1B keeps, so that the device need not wait for the host.
void StagedNetwork::AwaitDevice(size_t stage, size_t micro_batch) {
  const size_t kept = stages() - stage + 1;
  if (micro_batch >= kept) streams_->WaitFor(backwards_[stage][micro_batch - kept]);
}

void StagedNetwork::TakeTargets() {
  const at::Device device = streams_->device(stages() - 1);
  targets_ = TargetsOf(batch_, spec_.classes).to(device);
  // An image counts as right where its own label is said.
  labels_ = batch_.other_labels.empty() ? targets_
                                        : TargetsOf({.images = {}, .labels = batch_.labels}, spec_.classes).to(device);
  losses_ = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  correct_ = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
}

// Its part in the mean over the whole batch, so that the gradients of the parts add up to that of the mean.
at::Tensor StagedNetwork::Loss(const at::Tensor& outputs, size_t micro_batch) {
  const at::Tensor logits = outputs.to(at::kFloat);
  const auto begin = static_cast<int64_t>(parts_[micro_batch].labels.data() - batch_.labels.data());
  const int64_t size = logits.size(0);
  const at::Tensor sum = loss_->Sum(logits, targets_.narrow(0, begin, size));
  {
    const at::NoGradGuard no_grad;
    losses_.add_(sum.detach());
    correct_.add_(logits.argmax(1).eq(labels_.narrow(0, begin, size)).sum());
  }
  const at::Tensor part = sum / static_cast<double>(batch_.labels.size());
  return batch_.loss_scale == 1 ? part : part * batch_.loss_scale;
}

absl::Status StagedNetwork::Backward(size_t stage, size_t micro_batch) {
  return StageGuarded([&] {
    Passing& passing = passing_[stage][micro_batch];
    at::Tensor gradient;
    if (!IsLast(stage)) {
      Passing& behind = passing_[stage + 1][micro_batch];
      gradient = streams_->Take(behind.input.grad(), {.from = stage + 1, .to = stage}, behind.backward);
      behind = {};
    }
    streams_->Compute(stage, [&] { passing.output.backward(gradient); });
    passing.output = at::Tensor();
    passing.backward = backwards_[stage][micro_batch] = streams_->Given(stage);
  });
}

absl::StatusOr<uint64_t> StagedNetwork::EndStage(size_t stage) {
  Stage& own = stages_[stage];
  const absl::Status status = StageGuarded([&] {
    streams_->Compute(stage, [&] {
      if (batch_.loss_scale != 1) own.tensors->DivideAccumulated(batch_.loss_scale);
      Download(own);
      if (IsLast(stage)) CountUp();
    });
    streams_->Finish(stage);
  });
  if (!status.ok()) return status;
  return own.part.begin;
}

void StagedNetwork::CountUp() {
  result_ = {.samples = batch_.labels.size(),
             .loss = losses_.item<double>() / static_cast<double>(batch_.labels.size()),
             .correct = static_cast<uint64_t>(correct_.item<int64_t>())};
}

void StagedNetwork::DropStage(size_t stage) {
  // What it says of a device that has failed was said already.
  (void)StageGuarded([&] { streams_->Finish(stage); });
}

absl::StatusOr<StepResult> StagedNetwork::Step(const BatchView& batch, const Ready& ready) {
  if (batch.arrival != nullptr) {
    if (absl::Status all = batch.arrival->AwaitAll(); !all.ok()) return all;
  }
  absl::Status status = BeginStep(batch, 1);
  for (size_t i = 0; status.ok() && i < stages(); ++i) status = Forward(i, 0);
  for (size_t i = stages(); status.ok() && i-- > 0;) status = Backward(i, 0);
  for (size_t i = 0; i < stages(); ++i) {
    if (status.ok()) {
      status = EndStage(i).status();
    } else {
      DropStage(i);
    }
  }
  if (!status.ok()) return status;
  ready(0);
  return result_;
}

absl::StatusOr<StepResult> StagedNetwork::Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) {
  if (absl::Status status = Check(batch); !status.ok()) return status;
  if (predictions.size() != batch.labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is room for ", predictions.size(), " predictions of ", batch.labels.size(), " images"));
  }
  StepResult result;
  const absl::Status status = StageGuarded([&] {
    const at::NoGradGuard no_grad;
    at::Tensor x;
    StageStreams::Point made;
    for (size_t i = 0; i < stages(); ++i) {
      if (i > 0) x = streams_->Take(x, {.from = i - 1, .to = i}, made);
      streams_->Compute(i, [&] {
        Upload(stages_[i]);
        x = Compute(i, i == 0 ? Images(batch) : x, Mode::kEvaluation);
        if (!IsLast(i)) return;
        const at::Tensor targets = TargetsOf(batch, spec_.classes).to(x.device());
        result = ScoreOf(x, loss_->Plain(x, targets), batch, predictions);
      });
      made = streams_->Given(i);
    }
  });
  // Others may write the parameters, and read the batch's memory no more, when this returns.
  for (size_t i = 0; i < stages(); ++i) DropStage(i);
  if (!status.ok()) return status;
  return result;
}

at::Device ToTorchDevice(const Device& device) {
  if (device.kind == Device::Kind::kCpu) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedModel>> MakeStagedNetwork(const ModelSpec& spec, uint64_t seed,
                                                               std::unique_ptr<StageStreams> streams,
                                                               const StagedModel::Pin& pin) {
  absl::StatusOr<Layout> layout = MakeLayout(spec);
  if (!layout.ok()) return layout.status();
  absl::StatusOr<std::vector<size_t>> cuts = CutModel(spec, streams->stages());
  if (!cuts.ok()) return cuts.status();
  for (size_t i = 0; i < streams->stages(); ++i) {
    if (absl::Status can = CheckPrecision(streams->device(i), spec.precision); !can.ok()) return can;
  }
  // On the host it computes nothing, and so in whatever precision.
  ModelSpec on_host = spec;
  on_host.precision = Precision::kFloat32;
  absl::StatusOr<std::unique_ptr<Model>> whole = Model::Create(on_host, seed);
  if (!whole.ok()) return whole.status();
  std::unique_ptr<StagedNetwork> model;
  const absl::Status made = StageGuarded([&] {
    model = std::make_unique<StagedNetwork>(spec, *std::move(whole), std::move(streams), pin);
    model->Build(*layout, *cuts);
  });
  if (!made.ok()) return made;
  return model;
}

absl::StatusOr<std::unique_ptr<StagedModel>> StagedModel::Create(const ModelSpec& spec, uint64_t seed,
                                                                 const std::vector<Device>& devices, const Pin& pin) {
  std::vector<at::Device> places;
  for (const Device& device : devices) places.push_back(ToTorchDevice(device));
  std::unique_ptr<StageStreams> streams;
  const absl::Status made = StageGuarded([&] { streams = std::make_unique<StageStreams>(places); });
  if (!made.ok()) return made;
  return MakeStagedNetwork(spec, seed, std::move(streams), pin);
}

}  // namespace slackline::worker

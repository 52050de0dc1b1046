#include "worker/model/staged_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/chain_network.h"
#include "worker/model/flat_tensors.h"
#include "worker/model/layout.h"
#include "worker/model/stage_plan.h"
#include "worker/model/training_loss.h"

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

// A micro-batch in one stage, from its Forward() to its Backward().
struct Passing {
  at::Tensor input;   // a leaf: its gradient goes to the stage before
  at::Tensor output;  // without a history for the stage behind; of the last one, the loss
};

class StagedChain final : public StagedModel {
 public:
  StagedChain(const ModelSpec& spec, std::unique_ptr<Model> whole, Layout layout, std::vector<size_t> cuts)
      : spec_(spec),
        whole_(std::move(whole)),
        layout_(std::move(layout)),
        cuts_(std::move(cuts)),
        tensors_(layout_),
        network_(spec, tensors_),
        loss_(spec, at::kCPU) {
    UseParameters(whole_->parameters());
    UsePush(whole_->push());
  }

  const std::vector<TensorInfo>& tensors() const override { return whole_->tensors(); }
  uint64_t elements() const override { return whole_->elements(); }
  uint64_t trained_elements() const override { return whole_->trained_elements(); }
  absl::Span<float> parameters() override { return whole_->parameters(); }
  absl::Span<float> push() override { return whole_->push(); }
  void UsePush(absl::Span<float> memory) override {
    whole_->UsePush(memory);
    tensors_.UsePush(memory);
  }
  void UseParameters(absl::Span<float> memory) override {
    whole_->UseParameters(memory);
    tensors_.UseParameters(memory);
  }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    return whole_->Step(batch, ready);
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override {
    return whole_->Evaluate(batch, predictions);
  }

  size_t stages() const override { return cuts_.size() - 1; }
  absl::Status BeginStep(const BatchView& batch, size_t micro_batches) override;
  absl::Status Forward(size_t stage, size_t micro_batch) override;
  absl::Status Backward(size_t stage, size_t micro_batch) override;
  absl::StatusOr<uint64_t> EndStage(size_t stage) override;
  StepResult result() const override;

 private:
  bool IsLast(size_t stage) const { return stage + 1 == stages(); }
  at::Tensor Images(const BatchView& part) const;
  // Of the last stage.
  at::Tensor Loss(const at::Tensor& logits, size_t micro_batch);

  const ModelSpec spec_;
  const std::unique_ptr<Model> whole_;
  const Layout layout_;
  const std::vector<size_t> cuts_;  // layers
  FlatTensors tensors_;             // in the memory of whole_
  ChainNetwork network_;
  const TrainingLoss loss_;
  // Of the step.
  uint64_t samples_ = 0;
  std::vector<BatchView> parts_;
  std::vector<std::vector<Passing>> passing_;  // by stage and micro-batch
  std::vector<StepResult> results_;            // by micro-batch; with the sum of losses, not the mean
};

absl::Status StagedChain::BeginStep(const BatchView& batch, size_t micro_batches) {
  const size_t count = batch.labels.size(), pixels = size_t{spec_.channels} * spec_.height * spec_.width;
  if (micro_batches == 0 || count < micro_batches || batch.images.size() != count * pixels) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", count, " labels and ", batch.images.size(),
                                                   " pixels cannot be cut into ", micro_batches, " parts of images of ",
                                                   pixels));
  }
  if (absl::Status status = CheckTargets(batch, spec_.classes); !status.ok()) return status;
  samples_ = count;
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
  results_.assign(micro_batches, StepResult{});
  tensors_.Begin();
  return absl::OkStatus();
}

// As TorchModel has it: channels last.
at::Tensor StagedChain::Images(const BatchView& part) const {
  const int64_t count = part.labels.size(), channels = spec_.channels, height = spec_.height, width = spec_.width;
  auto* pixels = const_cast<float*>(part.images.data());
  if (channels == 1) {
    return at::from_blob(pixels, {count, 1, height, width}, {height * width, 1, width, 1}, at::kFloat);
  }
  return at::from_blob(pixels, {count, channels, height, width}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
}

absl::Status StagedChain::Forward(size_t stage, size_t micro_batch) {
  return StageGuarded([&] {
    Passing& passing = passing_[stage][micro_batch];
    if (stage == 0) {
      passing.input = Images(parts_[micro_batch]);
    } else {
      passing.input = passing_[stage - 1][micro_batch].output.detach();
      passing.input.set_requires_grad(true);
    }
    const ChainNetwork::Layers layers = {.begin = cuts_[stage], .end = cuts_[stage + 1]};
    passing.output = network_.ForwardLayers(passing.input, layers, Mode::kTraining);
    if (IsLast(stage)) passing.output = Loss(passing.output, micro_batch);
  });
}

// Its part in the mean over the whole batch, so that the gradients of the parts add up to that of the mean.
at::Tensor StagedChain::Loss(const at::Tensor& logits, size_t micro_batch) {
  const BatchView& part = parts_[micro_batch];
  const at::Tensor sum = loss_.Sum(logits, TargetsOf(part, spec_.classes));
  // An image counts as right where its own label is said.
  const at::Tensor labels = TargetsOf({.images = {}, .labels = part.labels}, spec_.classes);
  results_[micro_batch] = {.samples = part.labels.size(),
                           .loss = sum.item<float>(),
                           .correct = static_cast<uint64_t>(logits.argmax(1).eq(labels).sum().item<int64_t>())};
  return sum / static_cast<double>(samples_);
}

absl::Status StagedChain::Backward(size_t stage, size_t micro_batch) {
  return StageGuarded([&] {
    Passing& passing = passing_[stage][micro_batch];
    if (IsLast(stage)) {
      passing.output.backward();
    } else {
      Passing& behind = passing_[stage + 1][micro_batch];
      passing.output.backward(behind.input.grad());
      behind = {};
    }
    passing.output = at::Tensor();
  });
}

absl::StatusOr<uint64_t> StagedChain::EndStage(size_t stage) {
  uint64_t from = layout_.trained_elements;
  const absl::Status status = StageGuarded([&] {
    for (const std::string& name : network_.TensorsOf({.begin = cuts_[stage], .end = cuts_[stage + 1]})) {
      tensors_.MoveGradient(name);
      const auto tensor = std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                                       [&](const TensorInfo& info) { return info.name == name; });
      from = std::min(from, tensor->offset);
    }
  });
  if (!status.ok()) return status;
  return from;
}

StepResult StagedChain::result() const {
  StepResult total;
  for (const StepResult& part : results_) {
    total.samples += part.samples;
    total.correct += part.correct;
    total.loss += part.loss;
  }
  total.loss /= static_cast<double>(total.samples);
  return total;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedModel>> StagedModel::Create(const ModelSpec& spec, uint64_t seed, size_t stages) {
  absl::StatusOr<Layout> layout = MakeLayout(spec);
  if (!layout.ok()) return layout.status();
  absl::StatusOr<std::vector<size_t>> cuts = CutModel(spec, stages);
  if (!cuts.ok()) return cuts.status();
  absl::StatusOr<std::unique_ptr<Model>> whole = Model::Create(spec, seed);
  if (!whole.ok()) return whole.status();
  std::unique_ptr<StagedModel> model;
  const absl::Status made = StageGuarded(
      [&] { model = std::make_unique<StagedChain>(spec, *std::move(whole), *std::move(layout), *std::move(cuts)); });
  if (!made.ok()) return made;
  return model;
}

}  // namespace slackline::worker

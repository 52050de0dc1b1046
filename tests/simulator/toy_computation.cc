#include "tests/simulator/toy_computation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "simulator/step_task.h"

namespace slackline::simulator {
namespace {

worker::TensorInfo Weight() {
  worker::TensorInfo tensor;
  tensor.name = "weight";
  tensor.shape = {ToyComputation::kElements};
  return tensor;
}

// An image is its label.
class ToyModel final : public worker::Model {
 public:
  const std::vector<worker::TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return ToyComputation::kElements; }
  uint64_t trained_elements() const override { return ToyComputation::kElements; }
  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  absl::Span<float> push() override { return push_; }
  void UsePush(absl::Span<float> memory) override { push_ = memory; }
  void UseParameters(absl::Span<float>) override {}
  absl::StatusOr<worker::StepResult> Step(const worker::BatchView& batch, const Ready&) override {
    double mean = 0;
    for (const int64_t label : batch.labels) mean += static_cast<double>(label);
    mean /= static_cast<double>(batch.labels.size());
    worker::StepResult result;
    result.samples = batch.labels.size();
    for (size_t i = 0; i < push_.size(); ++i) {
      push_[i] = parameters_[i] - static_cast<float>(mean);
      result.loss += push_[i] * push_[i] / 2;
    }
    return result;
  }
  absl::StatusOr<worker::StepResult> Evaluate(const worker::BatchView&, absl::Span<int64_t>) override {
    return absl::UnimplementedError("the toy evaluates weights");
  }

 private:
  const std::vector<worker::TensorInfo> tensors_ = {Weight()};
  std::vector<float> parameters_ = std::vector<float>(ToyComputation::kElements);
  absl::Span<float> push_;
};

}  // namespace

ToyComputation::ToyComputation() : initial_(kElements, 4.0f) {
  learned_ = {{Weight()}, kElements, kElements, kImages, 10};
}

Computation::Pending ToyComputation::Begin(StepTask task) {
  std::promise<absl::StatusOr<std::shared_ptr<const Gradient>>> done;
  Pending pending = done.get_future();
  batches_.push_back(task.images.size());
  if (fail_after_ && batches_.size() > *fail_after_) {
    done.set_value(absl::InternalError("the loss is nan"));
    return pending;
  }
  auto gradient = std::make_shared<Gradient>();
  gradient->push = AllocateAlignedFloats(kElements);
  ToyModel model;
  model.UsePush({gradient->push.get(), kElements});
  uint64_t begin = 0;
  for (const ps::SliceView& view : task.weights) {
    view.CopyTo(model.parameters().subspan(begin, view.elements()));
    begin += view.elements();
  }
  std::vector<int64_t> labels;
  const auto load = [&labels](absl::Span<const uint32_t> images) {
    labels.clear();
    for (const uint32_t image : images) labels.push_back(image % 3);
    return worker::BatchView{.images = {}, .labels = labels};
  };
  if (absl::Status run = RunTask(task, load, model, *gradient); !run.ok()) {
    done.set_value(run);
    return pending;
  }
  for (const float value : model.push()) gradient->norm += value * value;
  gradient->norm = std::sqrt(gradient->norm);
  done.set_value(std::shared_ptr<const Gradient>(std::move(gradient)));
  return pending;
}

absl::StatusOr<worker::EvaluationResult> ToyComputation::Evaluate(const Weights& weights,
                                                                  const worker::EvaluationWork& work) {
  worker::EvaluationResult result;
  result.work = work;
  result.metrics.samples = learned_.test_samples;
  last_weight_ = weights.front().chunk(0)[0];
  result.metrics.accuracy = std::max(0.0, 1 - std::abs(last_weight_ - 1.0));
  return result;
}

}  // namespace slackline::simulator

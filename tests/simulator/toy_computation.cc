#include "tests/simulator/toy_computation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slackline::simulator {

ToyComputation::ToyComputation() : initial_(kElements, 4.0f) {
  worker::TensorInfo tensor;
  tensor.name = "weight";
  tensor.shape = {kElements};
  learned_ = {{tensor}, kElements, kElements, kImages, 10};
}

Computation::Pending ToyComputation::Begin(StepTask task) {
  const std::vector<uint32_t>& images = task.images;
  std::promise<absl::StatusOr<std::shared_ptr<const Gradient>>> done;
  Pending pending = done.get_future();
  batches_.push_back(images.size());
  if (fail_after_ && batches_.size() > *fail_after_) {
    done.set_value(absl::InternalError("the loss is nan"));
    return pending;
  }
  double mean = 0;
  for (const uint32_t image : images) mean += image % 3;
  mean /= static_cast<double>(images.size());
  auto gradient = std::make_shared<Gradient>();
  gradient->push = AllocateAlignedFloats(kElements);
  uint64_t begin = 0;
  for (const ps::SliceView& view : task.weights) {
    view.CopyTo({gradient->push.get() + begin, view.elements()});
    begin += view.elements();
  }
  gradient->result.samples = images.size();
  for (uint64_t i = 0; i < kElements; ++i) {
    float& value = gradient->push[i];
    value -= static_cast<float>(mean);
    gradient->result.loss += value * value / 2;
    gradient->norm += value * value;
  }
  gradient->norm = std::sqrt(gradient->norm);
  done.set_value(std::shared_ptr<const Gradient>(std::move(gradient)));
  return pending;
}

absl::StatusOr<worker::EvaluationResult> ToyComputation::Evaluate(const Weights& weights,
                                                                  const worker::EvaluationWork& work) {
  worker::EvaluationResult result;
  result.work = work;
  result.metrics.samples = learned_.test_samples;
  result.metrics.accuracy = std::max(0.0, 1 - std::abs(weights.front().chunk(0)[0] - 1.0));
  return result;
}

}  // namespace slackline::simulator

#include "worker/model/torch/recorded_step.h"

#include <ATen/ATen.h>

#include <utility>

namespace slackline::worker {

RecordedStep::Shape RecordedStep::ShapeOf(const Inputs& inputs) {
  return {.images = inputs.images.sizes().vec(), .targets = inputs.targets.sizes().vec()};
}

bool RecordedStep::Takes(const Inputs& inputs, const Setting& setting) {
  Shape shape = ShapeOf(inputs);
  if (Recorded(shape, setting)) return true;
  if (shape == largest_) return ++seen_ > kPlainSteps;
  if (shape.samples() < largest_.samples()) return false;
  largest_ = std::move(shape);
  seen_ = 1;
  return false;
}

const RecordedStep::Outputs& RecordedStep::Run(const Inputs& inputs, const Setting& setting, const Work& work) {
  Shape shape = ShapeOf(inputs);
  if (!Recorded(shape, setting)) {
    there_ = false;
    inputs_ = {.images = inputs.images.clone(), .targets = inputs.targets.clone()};
    recorder_->Record([this, work] { outputs_ = work(inputs_); });
    recorded_shape_ = std::move(shape);
    recorded_setting_ = setting;
    there_ = true;
  } else {
    inputs_.images.copy_(inputs.images);
    inputs_.targets.copy_(inputs.targets);
  }
  recorder_->Replay();
  return outputs_;
}

}  // namespace slackline::worker

// Steps on batches of one size, recorded once and replayed from then on. LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/model/step_recorder.h"

namespace slackline::worker {

// Which steps those are: the first ones of a size go by plainly, in which libraries choose their algorithms and
// allocate, and so do smaller batches than the largest.
//
// Thread-safety: none.
class RecordedStep {
 public:
  // Until a size is recorded.
  static constexpr uint32_t kPlainSteps = 3;

  // On the device.
  struct Inputs {
    at::Tensor images;
    at::Tensor targets;
  };
  // What a recording computes with, beside its inputs: with other values it is another one.
  struct Setting {
    float loss_scale = 1;
    const float* parameters = nullptr;
    const float* push = nullptr;
    bool operator==(const Setting&) const = default;
  };
  struct Outputs {
    at::Tensor made;
    at::Tensor loss;
  };
  using Work = std::function<Outputs(const Inputs& inputs)>;

  explicit RecordedStep(std::unique_ptr<StepRecorder> recorder) : recorder_(std::move(recorder)) {}

  StepRecorder& recorder() { return *recorder_; }
  // Whether the next step is to go through Run().
  bool Takes(const Inputs& inputs, const Setting& setting);
  // The step, by `work` recorded or by what was recorded before. Outputs hold until the next one. Requires: Takes() has
  // said so, of the same; of its arguments and whatever else changes from step to step `work` reads `inputs` alone.
  const Outputs& Run(const Inputs& inputs, const Setting& setting, const Work& work);

 private:
  struct Shape {
    std::vector<int64_t> images, targets;
    bool operator==(const Shape&) const = default;
    int64_t samples() const { return images.empty() ? 0 : images.front(); }
  };
  static Shape ShapeOf(const Inputs& inputs);
  bool Recorded(const Shape& shape, const Setting& setting) const {
    return there_ && shape == recorded_shape_ && setting == recorded_setting_;
  }

  const std::unique_ptr<StepRecorder> recorder_;
  Shape largest_;  // so far
  uint32_t seen_ = 0;
  bool there_ = false;
  Shape recorded_shape_;
  Setting recorded_setting_;
  // The memory that a recording reads and writes.
  Inputs inputs_;
  Outputs outputs_;
};

}  // namespace slackline::worker

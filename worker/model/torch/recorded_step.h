// RecordedStep: steps on batches of one size, recorded once and then replayed. Uses LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/model/step_recorder.h"

namespace slackline::worker {

// RecordedStep decides which steps are recorded. The first steps of a size run plainly, while libraries choose their
// algorithms and allocate memory. Batches smaller than the largest also run plainly.
//
// Thread-safety: none.
class RecordedStep {
 public:
  // Number of plain steps before a size is recorded.
  static constexpr uint32_t kPlainSteps = 3;

  // Inputs of a step, on the device.
  struct Inputs {
    at::Tensor images;
    at::Tensor targets;
  };
  // Values, besides its inputs, that a recording depends on. Other values need a new recording.
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
  // Returns whether the next step must go through Run().
  bool Takes(const Inputs& inputs, const Setting& setting);
  // Runs the step, by recording `work` or by replaying the recording. Outputs are valid until the next step. Requires:
  // Takes() has returned true for the same arguments. Of everything that changes from step to step, `work` reads only
  // its `inputs`.
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
  Shape largest_;  // largest shape so far
  uint32_t seen_ = 0;
  bool there_ = false;
  Shape recorded_shape_;
  Setting recorded_setting_;
  // Memory that the recording reads and writes.
  Inputs inputs_;
  Outputs outputs_;
};

}  // namespace slackline::worker

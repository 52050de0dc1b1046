// A model whose gradients follow from a formula that make_local_golden.py repeats.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/model.h"

namespace slackline::worker {

// The gradient of element i is slope(i) (w - target(worker, step, i)); slopes, targets and first weights are exact in
// float32.
//
// Thread-safety: none.
class FormulaModel final : public Model {
 public:
  static constexpr uint64_t kElements = 37;
  struct Goal {
    int worker = 0;
    int step = 0;
  };

  FormulaModel() {
    for (int i = 0; i < static_cast<int>(kElements); ++i) {
      parameters_.push_back(static_cast<float>((i * 7919) % 1021 - 510) / 256);
    }
  }

  // Sets the goal of all steps from now on.
  void SetGoal(const Goal& goal) { goal_ = goal; }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return kElements; }
  uint64_t trained_elements() const override { return kElements; }
  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  absl::Span<float> push() override { return absl::MakeSpan(push_); }
  void UsePush(absl::Span<float>) override {}
  void UseParameters(absl::Span<float>) override {}
  absl::StatusOr<StepResult> Step(const BatchView&, const Ready&) override {
    for (int i = 0; i < static_cast<int>(kElements); ++i) {
      const float slope = static_cast<float>((i * 37) % 11 + 1) / 8;
      const float target =
          static_cast<float>((goal_.step * 7919 + goal_.worker * 104729 + i * 31) % 2003 - 1001) / 1024;
      push_[static_cast<size_t>(i)] = slope * (parameters_[static_cast<size_t>(i)] - target);
    }
    StepResult result;
    result.samples = 1;
    return result;
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView&, absl::Span<int64_t>) override {
    return absl::UnimplementedError("a formula has no accuracy");
  }

 private:
  const std::vector<TensorInfo> tensors_ = {{.name = "weight", .shape = {kElements}}};
  Goal goal_;
  std::vector<float> parameters_;
  std::vector<float> push_ = std::vector<float>(kElements);
};

}  // namespace slackline::worker

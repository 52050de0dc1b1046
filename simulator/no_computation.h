// A computation for workers that compute nothing: only the protocol is simulated.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "simulator/computation.h"
#include "worker/model/layout.h"
#include "worker/settings/job_config.h"

namespace slackline::simulator {

// Has the sizes of model and data, but no values.
class NoComputation final : public Computation {
 public:
  explicit NoComputation(Learned learned) : learned_(std::move(learned)) {}

  const Learned& learned() const override { return learned_; }
  absl::Span<const float> initial_weights() const override { return {}; }

  Pending Begin(StepTask task) override {
    auto gradient = std::make_shared<Gradient>();
    gradient->result.samples = task.images.size();
    std::promise<absl::StatusOr<std::shared_ptr<const Gradient>>> done;
    done.set_value(std::shared_ptr<const Gradient>(std::move(gradient)));
    return done.get_future();
  }
  absl::StatusOr<worker::EvaluationResult> Evaluate(const Weights&, const worker::EvaluationWork& work) override {
    worker::EvaluationResult result;
    result.work = work;
    return result;
  }
  absl::StatusOr<absl::Duration> Measure(uint64_t) override {
    return absl::InvalidArgumentError("nothing is computed; simulation.compute_us_per_sample must be above 0");
  }

 private:
  const Learned learned_;
};

// Returns the tensors of a model.
using LayoutReader = std::function<absl::StatusOr<worker::Layout>(const worker::ModelSpec& spec)>;

// Returns a computation with the sizes of the same model and data. Its gradients are empty, and its evaluations cover 0
// images.
absl::StatusOr<std::unique_ptr<Computation>> MakeNoComputation(const worker::WorkerConfig& config,
                                                               const LayoutReader& layout_of);

}  // namespace slackline::simulator

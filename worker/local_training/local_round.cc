#include "worker/local_training/local_round.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "common/base/check.h"

namespace slackline::worker {

void LocalRound::Begin(Model& model, std::shared_ptr<OptimizerState> state) {
  optimizer_ = std::move(state);
  if (optimizer_ == nullptr) {
    optimizer_ = std::make_shared<OptimizerState>(config_.optimizer, model.trained_elements());
  }
  if (start_ == nullptr) start_ = AllocateAlignedFloats(model.elements());
  absl::c_copy(model.parameters(), start_.get());
  steps_ = 0;
  sum_ = {};
  loss_sum_ = 0;
}

void LocalRound::Step(Model& model, const StepResult& result) {
  const size_t trained = model.trained_elements();
  const absl::Span<const float> push = model.push();
  optimizer_->BeginStep({.lr = config_.optimizer.lr});
  optimizer_->StepBlock(0, push.first(trained), model.parameters().first(trained));
  absl::c_copy(push.first(model.pushed_elements()).subspan(trained),
               model.parameters().begin() + static_cast<std::ptrdiff_t>(trained));
  ++steps_;
  sum_.samples += result.samples;
  sum_.correct += result.correct;
  loss_sum_ += result.loss * static_cast<double>(result.samples);
}

StepResult LocalRound::Finish(Model& model) {
  SLACKLINE_CHECK(sum_.samples > 0);
  const size_t trained = model.trained_elements();
  float* const push = model.push().data();
  const float* const weights = model.parameters().data();
  const float* const start = start_.get();
  // Buffers are in push() since the last step.
  for (size_t i = 0; i < trained; ++i) push[i] = start[i] - weights[i];
  // A shard that has not changed is not pulled again.
  std::copy_n(start, model.elements(), model.parameters().data());
  sum_.loss = loss_sum_ / static_cast<double>(sum_.samples);
  return sum_;
}

std::shared_ptr<OptimizerState> LocalRound::TakeState() {
  if (!config_.keep_state) optimizer_.reset();
  return std::exchange(optimizer_, nullptr);
}

}  // namespace slackline::worker

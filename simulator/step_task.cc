#include "simulator/step_task.h"

#include "worker/trainer/push_mean.h"

namespace slackline::simulator {
namespace {

// The mean over the batches of a push.
absl::Status Accumulate(const StepTask& task, const LoadBatch& load, worker::Model& model, worker::StepResult& sum) {
  const absl::Span<const uint32_t> images = task.images;
  worker::PushMean mean;
  double loss_sum = 0;
  for (size_t begin = 0; begin < images.size(); begin += task.batch_size) {
    const absl::StatusOr<worker::BatchView> batch = load(images.subspan(begin, task.batch_size));
    if (!batch.ok()) return batch.status();
    const auto result = model.Step(*batch);
    if (!result.ok()) return result.status();
    sum.samples += result->samples;
    sum.correct += result->correct;
    loss_sum += result->loss * static_cast<double>(result->samples);
    if (images.size() > task.batch_size) mean.Add(model.push(), result->samples);
  }
  sum.loss = loss_sum / static_cast<double>(sum.samples);
  if (images.size() > task.batch_size) mean.Write(model.push());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTask(const StepTask& task, const LoadBatch& load, worker::Model& model, Gradient& gradient) {
  if (!task.local.on()) return Accumulate(task, load, model, gradient.result);
  worker::LocalRound round(task.local);
  round.Begin(model, task.local_state);
  const absl::Span<const uint32_t> images = task.images;
  for (size_t begin = 0; begin < images.size(); begin += task.batch_size) {
    const absl::StatusOr<worker::BatchView> batch = load(images.subspan(begin, task.batch_size));
    if (!batch.ok()) return batch.status();
    const auto result = model.Step(*batch);
    if (!result.ok()) return result.status();
    round.Step(model, *result);
  }
  gradient.result = round.Finish(model);
  gradient.local_state = round.TakeState();
  return absl::OkStatus();
}

}  // namespace slackline::simulator

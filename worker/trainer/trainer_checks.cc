// What the trainer makes of figures that are not finite, and of a disk without room.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "worker/base/gradient_norm.h"
#include "worker/trainer/trainer.h"

namespace slackline::worker {
namespace {

// Between two attempts to write to a disk that is full.
constexpr absl::Duration kRoomEvery = absl::Seconds(1);

}  // namespace

absl::Status Trainer::CheckFinite(const StepResult& result, double norm, const RangeWork& range) const {
  const bool loss_finite = std::isfinite(result.loss);
  // Averaged buffers lie behind the gradient.
  const Model& model = parts_.group.model();
  const absl::Span<const float> push = parts_.group.model().push().first(model.pushed_elements());
  const double buffers = L2Norm(push.subspan(std::min<size_t>(life_.map().trained_elements, push.size())));
  if (loss_finite && std::isfinite(norm) && std::isfinite(buffers)) return absl::OkStatus();
  const std::string what = !loss_finite           ? absl::StrCat("the loss is ", result.loss)
                           : !std::isfinite(norm) ? absl::StrCat("the gradient's norm is ", norm)
                                                  : "a batch-norm statistic is not finite";
  return absl::InternalError(absl::StrCat(
      "step ", life_.client()->clock().value() + begun_.size() + 1, " (epoch ", range.epoch + 1, ", range ",
      range.range.value(), "): ", what, "; nothing of it was applied. A smaller ",
      options_.local.on() ? "local.lr or " : "", "optimizer.lr, a warm-up or optimizer.clip_norm usually helps"));
}

bool Trainer::Skips(const absl::Status& finite) {
  const float scale = scaler_.scale();
  if (!scaler_.Bad()) return false;
  log::Info("skipped a step: ", std::string(finite.message().substr(0, finite.message().find(';'))),
            " with the loss scaled by ", scale, "; the next ones by ", scaler_.scale());
  parts_.metrics.RecordSkipped(scaler_.scale());
  parts_.link.progress().Alive(parts_.time.Now());
  return true;
}

absl::Status Trainer::WriteResults(Model& model, EvaluationResult& result) {
  absl::Status written = parts_.evaluator.WriteFiles(model, result);
  if (!absl::IsResourceExhausted(written)) return written;
  const std::string most = absl::StrCat("at most ", absl::FormatDuration(options_.room_max), " (checkpoint.timeout_s)");
  const std::string what =
      absl::StrCat("room for the results of the run, ", most, ": ", std::string(written.message()));
  log::Warning("this worker waits for ", what);
  parts_.link.progress().SetWaitsFor(what);
  // The scheduler ends the job first, for all who would try it.
  const absl::Time deadline = parts_.time.Now() + options_.room_max + options_.timeouts.worker_dead();
  while (absl::IsResourceExhausted(written) && parts_.time.Now() < deadline) {
    parts_.link.progress().Alive(parts_.time.Now());
    absl::Status paused = parts_.link.Pause(kRoomEvery);
    if (paused.ok()) paused = life_.CheckStopped();
    if (!paused.ok()) return paused;
    written = parts_.evaluator.WriteFiles(model, result);
  }
  parts_.link.progress().SetWaitsFor("");
  if (written.ok()) log::Info("the disk has space again: this worker has written the results of the run");
  if (!absl::IsResourceExhausted(written)) return written;
  return absl::ResourceExhaustedError(absl::StrCat(written.message(), "; waited ", most,
                                                   "; free some space there, and continue with `slackline resume`"));
}

}  // namespace slackline::worker

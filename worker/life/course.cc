#include "worker/life/course.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::worker {

std::string LeaveReason(const LeaveAct& act) {
  return act.status.ok() ? act.reason : absl::StrCat("failed: ", act.status.message());
}

void Course::To(Act act, std::optional<std::string> goodbye) {
  act_ = std::move(act);
  goodbye_ = std::move(goodbye);
  if (goodbye_) entered_ = false;
}

void Course::Done(const absl::Status& status) {
  if (leaves()) return;
  if (!status.ok()) return EndLife(status);
  if (std::holds_alternative<JoinAct>(act_)) return To(EnterAct());
  entered_ |= std::holds_alternative<EnterAct>(act_);
  const RangeWork* const range = std::get_if<RangeWork>(&act_);
  To(AskAct{range != nullptr ? range->range : RangeId()});
}

void Course::EndLife(const absl::Status& status) {
  std::string why(status.message());
  fruitless_ = std::exchange(fruitful_, false) ? 0 : fruitless_ + 1;
  if (!absl::IsFailedPrecondition(status) || fruitless_ > kFruitlessLivesMax) return To(LeaveAct{status, why}, why);
  To(JoinAct(), why);
}

void Course::Got(const Work& work) {
  if (const auto* const leave = std::get_if<LeaveWork>(&work)) return End(absl::OkStatus(), leave->reason);
  if (const auto* const standby = std::get_if<StandbyWork>(&work)) return To(*standby, "standing by");
  if (const auto* const range = std::get_if<RangeWork>(&work)) {
    if (entered_) return To(*range);
    return EndLife(absl::FailedPreconditionError("there is work for a worker on standby"));
  }
  const auto& evaluation = std::get<EvaluationWork>(work);
  if (evaluation.final) return To(evaluation, "reading the final weights");
  if (entered_) return To(evaluation);
  EndLife(absl::FailedPreconditionError("there is an evaluation for a worker on standby"));
}

void Course::GiveUp() {
  if (!leaves()) To(AskAct());
}

void Course::End(const absl::Status& status, const std::string& reason) { To(LeaveAct{status, reason}, reason); }

}  // namespace slackline::worker

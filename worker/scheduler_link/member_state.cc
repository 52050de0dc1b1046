#include "worker/scheduler_link/member_state.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/retryable.h"

namespace slackline::worker {

void MemberState::Registered(const wire::RegisterWorkerReply& reply, absl::Time now) {
  life_ = {.job = JobId(reply.job()),
           .worker = WorkerId(reply.worker()),
           .incarnation = Incarnation(reply.incarnation()),
           .first_clock = Clock64(0),
           .send_seed = false};
  beating_ = true;
  live_ = false;
  generation_ = Generation();
  end_.reset();
  heard_ = now;
}

MemberState::News MemberState::Heard(Incarnation incarnation, const absl::StatusOr<wire::HeartbeatReply>& reply,
                                     absl::Time now) {
  if (!beating_ || incarnation != life_.incarnation) return News::kNone;
  if (!reply.ok()) {
    if (!rpc::IsRetryable(reply.status())) return EndLife(reply.status(), std::string(reply.status().message()));
    const absl::Duration silent = now - heard_;
    if (silent < silence_max_) return News::kNone;
    return EndLife(reply.status(), absl::StrCat(scheduler_, " has been silent for ",
                                                absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1)))));
  }
  heard_ = now;
  life_.send_seed = reply->send_seed();
  const bool comes = reply->state() == wire::WORKER_LIVE && !live_;
  if (comes) {
    live_ = true;
    life_.first_clock = Clock64(reply->first_clock());
  }
  if (reply->leave()) return EndLife(absl::OkStatus(), reply->leave_reason());
  return comes ? News::kLive : News::kNone;
}

MemberState::News MemberState::EndLife(const absl::Status& status, std::string reason) {
  beating_ = false;
  end_ = End{status, std::move(reason)};
  return News::kEnd;
}

}  // namespace slackline::worker

#include "ps/service/mailbox.h"

#include <grpc/support/time.h>

namespace slackline::ps {

bool Mailbox::Post(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  work_.push_back(std::move(work));
  if (!armed_) {
    armed_ = true;
    // The past: gRPC rounds a time of now up by a millisecond.
    alarm_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag_);
  }
  return true;
}

void Mailbox::Deliver() {
  std::vector<std::function<void()>> work;
  {
    absl::MutexLock lock(&mutex_);
    armed_ = false;
    work.swap(work_);
  }
  for (const std::function<void()>& run : work) run();
}

void Mailbox::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace slackline::ps

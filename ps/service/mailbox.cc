#include "ps/service/mailbox.h"

#include <chrono>

namespace slackline::ps {

bool Mailbox::Post(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  work_.push_back(std::move(work));
  if (!armed_) {
    armed_ = true;
    alarm_.Set(queue_, std::chrono::system_clock::now(), tag_);
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

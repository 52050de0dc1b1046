#include "worker/group/task_thread.h"

#include <utility>

namespace slackline::worker {

TaskThread::~TaskThread() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void TaskThread::Start(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &TaskThread::Idle));
  task_ = std::move(task);
  busy_ = true;
}

void TaskThread::Run() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &TaskThread::HasWork));
    if (!busy_) return;
    std::function<void()> task = std::move(task_);
    mutex_.Unlock();
    task();
    task = nullptr;
    mutex_.Lock();
    busy_ = false;
  }
}

}  // namespace slackline::worker

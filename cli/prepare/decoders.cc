#include "cli/prepare/decoders.h"

#include <algorithm>

#include "absl/time/time.h"

namespace slackline::cli::prepare {
namespace {

// Images that a thread takes at a time: enough that small ones do not wait for the lock.
constexpr size_t kTaken = 8;
constexpr absl::Duration kLookEvery = absl::Milliseconds(250);

}  // namespace

Decoders::Decoders(uint32_t jobs) {
  for (uint32_t i = 0; i < std::max<uint32_t>(1, jobs); ++i) threads_.emplace_back(&Decoders::Work, this);
}

Decoders::~Decoders() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Decoders::Run(size_t count, const std::function<void(size_t)>& task, const std::function<void(size_t)>& look) {
  absl::MutexLock lock(&mutex_);
  task_ = &task;
  count_ = count;
  next_ = 0;
  done_ = 0;
  while (!mutex_.AwaitWithTimeout(absl::Condition(this, &Decoders::AllDone), kLookEvery)) {
    const size_t done = done_;
    mutex_.Unlock();
    look(done);
    mutex_.Lock();
  }
  count_ = next_ = done_ = 0;
}

void Decoders::Work() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &Decoders::HasWork));
    if (stop_) return;
    const size_t begin = next_, end = std::min(count_, begin + kTaken);
    const std::function<void(size_t)>& task = *task_;
    next_ = end;
    mutex_.Unlock();
    for (size_t i = begin; i < end; ++i) task(i);
    mutex_.Lock();
    done_ += end - begin;
  }
}

}  // namespace slackline::cli::prepare

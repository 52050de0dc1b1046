#include "common/log/output.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace slackline {
namespace {

// Blocks as long as the reader likes. What cannot be written is dropped: there is nobody to tell.
void WriteAll(int descriptor, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // Somebody who shares it has made it so.
      pollfd room{descriptor, POLLOUT, 0};
      ::poll(&room, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {
      // The thread that writes blocks signals, so that this one has not come.
      if (errno == EPIPE) ::kill(::getpid(), SIGPIPE);
      return;
    }
  }
}

}  // namespace

// What waits for the reader.
//
// Thread-safety: safe.
class Output::Queue {
 public:
  explicit Queue(absl::Duration end_max) : end_max_(end_max) {}

  void Add(absl::string_view text) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const bool full = !waiting_.empty() && waiting_.size() + text.size() > kBytesMax;
    // None goes out after one that was left out, before a line can say so.
    if (full || (stuck_ && left_out_ > 0)) {
      ++left_out_;
      return;
    }
    waiting_.append(text.data(), text.size());
    const uint64_t last = added_ += text.size();
    if (stuck_) return;
    const auto written = [this, last]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return written_ >= last; };
    stuck_ = !mutex_.AwaitWithTimeout(absl::Condition(&written), kPatience);
  }

  // For the thread: writes until End(), and then what waits.
  void Run(int descriptor) ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      std::string text;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Queue::HasWork));
        if (waiting_.empty()) break;
        text.swap(waiting_);
      }
      WriteAll(descriptor, text);
      absl::MutexLock lock(&mutex_);
      written_ += text.size();
      stuck_ = false;
    }
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }

  void Flush() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!stuck_) stuck_ = !mutex_.AwaitWithTimeout(absl::Condition(this, &Queue::AllIsWritten), end_max_);
  }

  // Whether the thread has ended, after the reader had time to take the rest.
  bool End() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    end_ = true;
    return mutex_.AwaitWithTimeout(absl::Condition(&ended_), end_max_);
  }

  bool stuck() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return stuck_;
  }

  uint64_t TakeLeftOut() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return stuck_ ? 0 : std::exchange(left_out_, 0);
  }

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return end_ || !waiting_.empty(); }
  bool AllIsWritten() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return written_ == added_; }

  const absl::Duration end_max_;
  absl::Mutex mutex_;
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;    // bytes
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;  // of them
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

Output::Output(int descriptor, absl::Duration end_max)
    : descriptor_(descriptor), process_(::getpid()), queue_(std::make_shared<Queue>(end_max)) {}

Output::~Output() {
  if (!thread_.joinable()) return;
  !InChild() && queue_->End() ? thread_.join() : thread_.detach();
}

void Output::Write(absl::string_view text) {
  if (InChild()) return WriteAll(descriptor_, text);
  absl::call_once(begun_, [this] { Begin(); });
  queue_->Add(text);
}

void Output::Begin() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([queue = queue_, descriptor = descriptor_] { queue->Run(descriptor); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Output::Flush() {
  if (!InChild()) queue_->Flush();
}

bool Output::stuck() const { return queue_->stuck(); }

uint64_t Output::TakeLeftOut() { return queue_->TakeLeftOut(); }

bool Output::InChild() const { return ::getpid() != process_; }

int FinishStdout(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("standard output did not take all that was printed; is its disk full?\n", stderr);
  return code == 0 ? 1 : code;
}

}  // namespace slackline

// Queue of work that other threads give to the sequencer thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ps/base/readable.h"
#include "ps/service/awaited.h"

namespace slackline::ps {

// Runs work from other threads on the thread that drains the completion queue.
//
// Thread-safety: safe. Only the thread that drains the queue may call Deliver().
// Ownership:     borrows the queue; call Close() before the queue's shutdown.
class Mailbox {
 public:
  // `tag`: comes out of the queue when there is work to deliver.
  Mailbox(grpc::CompletionQueue* queue, void* tag) : queue_(queue), tag_(tag) {}

  // Queues `work`. Returns false, and drops `work`, once the mailbox is closed.
  bool Post(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `work` on the sequencer thread and returns its result.
  //   kUnavailable       the mailbox is closed: the server is stopping
  //   kDeadlineExceeded  the sequencer did not run it within `timeout`; it may still run
  template <typename Result>
  absl::StatusOr<Result> Ask(std::function<Result()> work, absl::Duration timeout) {
    // Shared because the work may run after the wait was given up.
    auto reply = std::make_shared<Awaited<Result>>();
    if (!Post([reply, work = std::move(work)] { reply->Give(work()); })) {
      return absl::UnavailableError("the server is stopping");
    }
    std::optional<Result> result = reply->Wait(timeout);
    if (!result.has_value()) {
      return absl::DeadlineExceededError(absl::StrCat("the sequencer did not answer within ", Readable(timeout)));
    }
    return *std::move(result);
  }

  // Runs all queued work.
  void Deliver() ABSL_LOCKS_EXCLUDED(mutex_);
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  grpc::CompletionQueue* const queue_;
  void* const tag_;
  absl::Mutex mutex_;
  std::vector<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::ps

// The lives of a worker in a job. It joins, and speaks to the servers through one client at a time. A life ends when
// the scheduler expels the worker, which may then join again, or when the job is over. The trainer and the embedded
// worker are built on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/timeouts.h"
#include "worker/base/progress.h"
#include "worker/client/client.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace slackline::worker {

// Smallest model, in elements, whose pushes leave while backward continues, in a thread of their own.
inline constexpr uint64_t kBackgroundElementsMin = 4 << 20;
// Longest time that a goodbye to the servers may take.
inline constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(2);

// Thread-safety: Stop(), EndWaits() and end() from any thread; all else on the worker's.
// Ownership:     borrows the link.
class Life {
 public:
  struct Options {
    Timeouts timeouts;
    // Longest time that the job waits for the return of a server that crashed.
    absl::Duration server_return;
  };
  struct End {
    absl::Status status;  // OK: the job is over, or the worker was stopped in good order
    std::string reason;
  };
  // Waits as absl::Mutex::AwaitWithTimeout() does.
  using Wait = std::function<bool(absl::Mutex& mutex, const absl::Condition& until, absl::Duration timeout)>;

  // Becomes the link's handler of ends and maps.
  Life(const Options& options, SchedulerLink& link);
  ~Life();

  // Joins the job, the first time or again, and learns the shard map.
  absl::Status Join();
  // Sends the initial weights, if this worker must, and pulls the newest ones. Requires: a client.
  absl::Status SeedAndPull(absl::Span<float> parameters) ABSL_LOCKS_EXCLUDED(mutex_);
  const WorkerMembership& membership() const { return membership_; }
  const ShardMap& map() const { return map_; }

  // Returns the options of a client of this life that all clients of a worker have. A reader only pulls.
  ClientOptions MakeClientOptions(bool reader) const;
  // Returns the present client; null if there is none.
  Client* client() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return client_.get(); }
  // Makes `client` the present client, tells it the newest map, and returns the previous one.
  std::unique_ptr<Client> Replace(std::unique_ptr<Client> client) ABSL_LOCKS_EXCLUDED(mutex_);
  // Pulls into `parameters` with a client of its own, a reader. The present client stays as it is: its next pull brings
  // only what has changed since its last one.
  absl::Status PullAside(std::unique_ptr<Client> reader, absl::Span<float> parameters) ABSL_LOCKS_EXCLUDED(mutex_);
  // Says goodbye to the servers.
  void Close(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs a call of the client that Stop(), EndWaits() or an expulsion can cut short.
  template <typename Call>
  auto Await(Call call) -> decltype(call()) {
    const absl::Status begin = BeginWait();
    if (!begin.ok()) return begin;
    auto result = call();
    EndWait();
    return result;
  }
  // Returns how long servers may keep silent.
  absl::Duration silence_max() const;

  // Returns kCancelled once the job is over or Stop() was called; CheckInterrupted() also kFailedPrecondition once the
  // scheduler has expelled this worker.
  absl::Status CheckStopped() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckInterrupted() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until CheckInterrupted() fails. Returns false after `timeout`.
  bool AwaitInterruption(const Wait& wait, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the end or the expulsion that made a call fail with `status`, or `status` itself. An expulsion is returned
  // once, as kFailedPrecondition: the worker may join again.
  absl::Status Cause(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<End> end() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the worker's last life: the call in progress and later ones return kCancelled.
  void Stop(const absl::Status& status, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the call in progress, and lets none begin: a worker that leaves has waited long enough.
  void EndWaits(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status BeginWait() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndWait() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status InterruptStatus() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool Interrupted() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return end_ || expelled_; }
  void OnLifeEnd(const absl::Status& status, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnMap(const ShardMap& map) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  SchedulerLink& link_;
  // Members of the worker's thread.
  WorkerMembership membership_;
  ShardMap map_;

  mutable absl::Mutex mutex_;
  // Replaced only by the worker's thread, which therefore reads it without the lock.
  std::unique_ptr<Client> client_ ABSL_GUARDED_BY(mutex_);
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // a call of client_ is running
  std::optional<std::string> waits_over_ ABSL_GUARDED_BY(mutex_);
  std::optional<ShardMap> newest_map_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> expelled_ ABSL_GUARDED_BY(mutex_);
  std::optional<End> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker

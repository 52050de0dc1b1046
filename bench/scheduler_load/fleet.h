// Workers and servers as a scheduler sees them over gRPC: they register, send heartbeats, ask for work and die. They
// have no data and no weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/timeouts.h"
#include "scheduler.grpc.pb.h"

namespace slackline::bench {

// Events that the members of a fleet have counted so far.
struct FleetCounts {
  uint64_t heartbeats = 0;
  uint64_t tasks = 0;
  uint64_t others = 0;  // registrations and shard maps
  // Calls that were answered with UNAVAILABLE, DEADLINE_EXCEEDED or RESOURCE_EXHAUSTED, and made again.
  uint64_t repeated = 0;
  // Workers that the scheduler took for dead although they lived.
  uint64_t expelled = 0;
  uint64_t died = 0;
  // Workers that the scheduler has told that they are live.
  uint64_t joined = 0;
  // Workers of `joined` that live now.
  uint64_t live = 0;
};

// Thread-safety: safe.
// Threads:       one that makes the calls when they are due, and those of gRPC, until destroyed.
class Fleet {
 public:
  struct Options {
    std::string scheduler;  // HOST:PORT
    uint64_t job_fingerprint = 0;
    std::vector<std::string> servers;  // their addresses, see control_server.h
    uint32_t workers = 0;
    uint64_t train_samples = 0;
    uint32_t batch = 32;
    Timeouts timeouts;
    absl::Duration step = absl::Seconds(1);
    // Time within which the first workers come, evenly.
    absl::Duration arrival = absl::Seconds(20);
  };

  explicit Fleet(Options options);
  // Waits for the calls in progress.
  ~Fleet();

  // Lets so many workers die each minute from now on, without a word, and as many others come.
  void set_deaths_per_minute(double deaths) ABSL_LOCKS_EXCLUDED(mutex_);
  FleetCounts counts() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns from when heartbeats were due until they were answered, since the last call, in microseconds.
  std::vector<double> TakeHeartbeatTimes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the first answer that no member expects; OK if there was none.
  absl::Status mistake() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Member;
  using Then = std::function<void()>;

  std::shared_ptr<Member> Add(std::string name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddWorker(absl::Time at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RegisterServer(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RegisterWorker(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Beat(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBeat(const std::shared_ptr<Member>& member, const wire::HeartbeatReply& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForMap(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForTask(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeTask(const std::shared_ptr<Member>& member, const wire::NextTaskReply& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ComeAnew(const std::shared_ptr<Member>& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A worker dies, and another comes.
  void KillOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes a call by `method`. `then` gets the reply with the lock held, unless the member is gone by then. After a
  // failure that may pass `again` makes the call again; a worker that the scheduler no longer knows comes anew.
  template <typename Reply, typename Request, typename Method, typename Take>
  void Call(const std::shared_ptr<Member>& member, const Request& request, absl::Duration timeout, Method method,
            Take then, void (Fleet::*again)(const std::shared_ptr<Member>&)) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a member's call at a time, unless the member is gone by then.
  void Later(const std::shared_ptr<Member>& member, absl::Time time,
             void (Fleet::*call)(const std::shared_ptr<Member>&)) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A member that gets an answer which none expects does nothing more.
  void Fail(const std::shared_ptr<Member>& member, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs `then` at a time, with the lock held.
  void At(absl::Time time, Then then) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t named_ ABSL_GUARDED_BY(mutex_) = 0;
  double deaths_per_minute_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_death_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_){1};
  std::multimap<absl::Time, Then> due_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);  // servers, then workers that have not died
  FleetCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<double> heartbeat_us_ ABSL_GUARDED_BY(mutex_);
  absl::Status mistake_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace slackline::bench

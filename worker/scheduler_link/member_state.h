// Membership of a worker in its present life, as the scheduler's answers tell it: registered, live, over.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "scheduler.pb.h"
#include "worker/scheduler_link/work.h"

namespace slackline::worker {

// Pure: no thread, no clock, no I/O.
//
// Thread-safety: none.
class MemberState {
 public:
  struct End {
    absl::Status status;  // OK: the job has ended
    std::string reason;
  };
  enum class News { kNone, kLive, kEnd };

  // `scheduler`: its name in messages. `silence_max`: longest time without an answer from it.
  MemberState(std::string scheduler, absl::Duration silence_max)
      : scheduler_(std::move(scheduler)), silence_max_(silence_max) {}

  // A life begins.
  void Registered(const wire::RegisterWorkerReply& reply, absl::Time now);
  // Takes the answer to a heartbeat of this incarnation; an answer to an earlier life is no news. The life ends if the
  // scheduler says so, refuses the heartbeat, or has been silent for too long.
  News Heard(Incarnation incarnation, const absl::StatusOr<wire::HeartbeatReply>& reply, absl::Time now);
  // Ends heartbeats: the worker leaves, or registers again.
  void StopBeating() { beating_ = false; }
  // The worker has, or will get, the shard map of this generation.
  void HasMap(Generation generation) { generation_ = std::max(generation_, generation); }

  const WorkerMembership& life() const { return life_; }
  // True while the scheduler counts on heartbeats.
  bool beating() const { return beating_; }
  bool live() const { return live_; }
  const std::optional<End>& end() const { return end_; }
  // True if the scheduler has a newer shard map than the one of this life.
  bool KnowsOlderThan(Generation generation) const { return generation_ != Generation() && generation_ < generation; }

 private:
  News EndLife(const absl::Status& status, std::string reason);

  std::string scheduler_;
  absl::Duration silence_max_;
  WorkerMembership life_;
  bool beating_ = false;
  bool live_ = false;
  Generation generation_;  // 0: no map yet
  std::optional<End> end_;
  absl::Time heard_;
};

}  // namespace slackline::worker

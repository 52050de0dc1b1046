// Decides which of two processes may have a worker name that both use. Pure.
//
// A restarted process takes the place of the process that died. But two containers may both run process 1 under the
// default name, and both be alive: then the first keeps the name. The scheduler cannot tell the two cases apart at
// once. The newcomer therefore asks again until the holder was silent long enough, or was heard of long enough after
// the first question.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/time/timeouts.h"

namespace slackline::scheduler {

// A worker's process, as its registration describes it.
struct WorkerOrigin {
  uint64_t instance = 0;  // RegisterWorkerRequest.instance
  uint32_t pid = 0;
  std::string host = {};
  std::string topology = {};
  uint32_t group = 0;        // index in worker.groups
  std::string metrics = {};  // host:port of its Prometheus endpoint
};

// Checks that a text of a registration is short enough: everybody who asks for the status gets it. `whose`: for example
// "a worker".
absl::Status CheckLength(absl::string_view whose, absl::string_view text);

enum class Kinship { kSame, kOther, kUnknown };

// Returns whether two registrations come from one process. Peers that say neither instance nor pid cannot be told
// apart.
Kinship KinshipOf(const WorkerOrigin& one, const WorkerOrigin& other);

class NameClaims {
 public:
  // A worker that has the name.
  struct Holder {
    WorkerId worker;
    WorkerOrigin origin;
    absl::Time heard;  // time of the last sign of life
  };

  explicit NameClaims(const Timeouts& timeouts) : timeouts_(timeouts) {}

  // Decides whether the process `claimant` may have the holder's name. `called`: the name with its role ("worker w-1").
  //   kUnavailable    whether the holder is alive is not known yet: ask again
  //   kAlreadyExists  the holder is alive
  absl::Status Ask(const Holder& holder, const WorkerOrigin& claimant, const std::string& called, absl::Time now);
  // Forgets the claims to the holder's name: the holder has another life, or is gone.
  void Drop(WorkerId holder);
  // Forgets all claims: what was heard, and when, is no longer certain, so all processes must ask again.
  void Clear() { claims_.clear(); }

 private:
  // Largest number of claims. At the limit all are forgotten; a process that asks again then waits longer.
  static constexpr size_t kClaimsMax = 1000;

  const Timeouts timeouts_;
  // Time at which each claimant of a holder's name first asked.
  std::map<std::pair<WorkerId, std::string>, absl::Time> claims_;
};

}  // namespace slackline::scheduler

// Two processes of one worker name: which of them may have it. Pure.
//
// A restarted process takes the place of the one that died. Two containers may both run process 1 under the default
// name, and both live: then the first keeps the name. The scheduler cannot tell the two cases apart at once, so the
// newcomer asks again until the other was silent long enough, or was heard of long enough after the first question.
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
#include "common/ids.h"
#include "common/timeouts.h"

namespace slackline::scheduler {

// A worker's process, as its registration describes it.
struct WorkerOrigin {
  uint64_t instance = 0;  // RegisterWorkerRequest.instance
  uint32_t pid = 0;
  std::string host = {};
  std::string topology = {};
  uint32_t group = 0;        // of worker.groups
  std::string metrics = {};  // host:port of its Prometheus endpoint
};

// A registration may be this long in each text that everybody who asks for the status gets; `whose`: "a worker".
absl::Status CheckLength(absl::string_view whose, absl::string_view text);

enum class Kinship { kSame, kOther, kUnknown };

// Whether two registrations come from one process. Peers that say neither instance nor pid cannot be told apart.
Kinship KinshipOf(const WorkerOrigin& one, const WorkerOrigin& other);

class NameClaims {
 public:
  // A worker that has the name.
  struct Holder {
    WorkerId worker;
    WorkerOrigin origin;
    absl::Time heard;  // last
  };

  explicit NameClaims(const Timeouts& timeouts) : timeouts_(timeouts) {}

  // Whether the process `claimant` may have the holder's name, which `called` says with its role ("worker w-1").
  //   kUnavailable    nobody knows yet whether the holder lives: ask again
  //   kAlreadyExists  the holder lives
  absl::Status Ask(const Holder& holder, const WorkerOrigin& claimant, const std::string& called, absl::Time now);
  // The holder has another life, or is gone.
  void Drop(WorkerId holder);
  // What was heard, and when, is not certain any more: everybody asks anew.
  void Clear() { claims_.clear(); }

 private:
  // More are not remembered; who asks again then waits longer.
  static constexpr size_t kClaimsMax = 1000;

  const Timeouts timeouts_;
  // When each claimant of a holder's name asked first.
  std::map<std::pair<WorkerId, std::string>, absl::Time> claims_;
};

}  // namespace slackline::scheduler

// The table of consistency modes: one entry holds what is known of a mode beside the engine, which makes the steps.
//
// A new mode needs an entry here, a value in protos/job.proto, and its steps in ps/consistency/.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline {

// Numbers are those of job::Consistency::Mode.
enum class ConsistencyMode { kAsync = 1, kSsp = 2, kBsp = 3, kSoftsync = 4, kQuorum = 5 };

struct ModeFacts {
  ConsistencyMode mode = ConsistencyMode::kSsp;
  // Name in the job file.
  absl::string_view name;
  // Setting that makes this entry differ from the mode's own, for messages: " with consistency.late: count".
  absl::string_view with = {};
  // True if staleness_max, staleness_auto and staleness_min bound how far workers are ahead.
  bool has_bound = false;
  // True if softsync_n sets the number of pushes in a step.
  bool has_groups = false;
  // True if quorum and quorum_deadline_ms say when a step is complete.
  bool has_quorum = false;
  // True if a step is the mean of gradients of its weights, so that none is stale but late ones (consistency.late).
  bool synchronous = false;
  // True if no worker goes on for long without the slowest.
  bool waits_for_slowest = false;
  // True if a push is answered before it is in a step, and so in a copy of the shard.
  bool answers_first = false;

  // Returns whether gradients may be stale, and be corrected for it.
  bool takes_stale() const { return !synchronous; }
  // Returns whether a step has at most one push of each worker, and they count alike.
  bool joins_workers() const { return synchronous && !answers_first; }
  // Returns whether a worker may wait for other workers.
  bool waits() const { return synchronous || waits_for_slowest; }
  // Returns whether all workers take each step together, on all shards.
  bool in_lockstep() const { return synchronous && waits_for_slowest; }
};

// Returns all entries, in the order in which messages name modes.
absl::Span<const ModeFacts> AllModes();
// Returns the entry of a mode. Requires: it has one.
// `counts_late`: whether pushes that come too late for their step are part of the next one (consistency.late).
const ModeFacts& FactsOf(ConsistencyMode mode, bool counts_late = false);

}  // namespace slackline

// What goes into the consistency engine of a shard, and what comes out of it. See engine.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"

namespace slackline::ps {

// Who sends: a worker in one of its lives.
struct Sender {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const Sender&, const Sender&) = default;
};

enum class Outcome { kApplied, kDiscarded };
enum class DiscardReason { kNone, kLineage, kLate, kOutlier };

// The final word on one sub-push.
struct Answer {
  Sequence sequence;
  Outcome outcome = Outcome::kApplied;
  DiscardReason reason = DiscardReason::kNone;
  // The shard's version after the decision.
  Version version;
  // In versions; 0 when discarded. In softsync as it was at acceptance.
  uint64_t staleness = 0;

  friend bool operator==(const Answer&, const Answer&) = default;
};

// --- Events -----------------------------------------------------------------------------------------------------

struct HelloEvent {
  Sender sender;
  // Clock at which this incarnation joined the job.
  Clock64 first_clock;
  // Largest sequence whose answer from this shard the worker has.
  Sequence last_answered;
};

// A sub-push that is complete, checked and staged.
struct PushEvent {
  Sender sender;
  Sequence sequence;
  // Version of this shard that the gradient was computed from.
  Version base;
  // At least 1.
  uint64_t samples = 1;
  // Now.
  absl::Time at;
  // Of the gradient, over the whole model: the same for all shards. The worker says so.
  double gradient_norm = 0;
  // Of the shard's part of it, measured here; 0 where nothing is told by it.
  double part_norm = 0;
};

struct PullEvent {
  Sender sender;
  PullId id;
  // The worker's own pushes that must have been answered first.
  Clock64 clock;
  // So many of its pulls may wait; a further one takes the place of the oldest. At least 1.
  uint32_t waiting_max = 1;
};

struct MemberEntry {
  Sender sender;
  std::string name;
};

// --- Actions ----------------------------------------------------------------------------------------------------

struct PushRef {
  Sender sender;
  Sequence sequence;

  friend auto operator<=>(const PushRef&, const PushRef&) = default;
};

// Apply one optimizer step; afterwards the shard is at `version`. The staged pushes may then be released.
struct ApplyAction {
  struct Part {
    PushRef push;
    // Weight of the gradient in the step; the weights of an action sum to 1.
    double weight = 1;
    uint64_t samples = 1;
    // Versions applied between the gradient's base and this step.
    uint64_t staleness = 0;
    // What the gradient was computed from.
    Version base;
  };
  std::vector<Part> parts;
  // Multiplies the learning rate and decoupled weight decay, never the gradient.
  double lr_scale = 1;
  // How far averaged buffers move towards the pushed mean: parts / live workers, 1 in bsp.
  double average_rate = 1;
  // Sum over the parts.
  uint64_t samples = 1;
  // As how many batches of one worker the step counts, for linear scaling of the learning rate: samples /
  // samples_nominal, or its pushes where each counts as one. 1 where each push is a step.
  double batches = 1;
  Version version;
};

// Release the staged bytes of a push that will not be applied.
struct DropAction {
  PushRef push;
};

struct AnswerAction {
  Sender sender;
  Answer answer;
  // The stored answer to a repeated push.
  bool repeated = false;
};

// Serve the pull from the version that is current at this place in the action list.
struct ServeAction {
  Sender sender;
  PullId id;
};

// A push or pull of this sender is refused and changed nothing. Staged bytes of the push, if any, are dropped by
// a DropAction of their own.
struct RefuseAction {
  Sender sender;
  // Of the push refused; 0 when a pull was.
  Sequence sequence;
  PullId pull;
  absl::Status status;
  // With kFailedPrecondition on a push.
  Sequence expected;
};

// Tell the worker that its pull still waits, and for whom.
struct WaitingAction {
  // The open step of a quorum.
  struct OpenStep {
    uint64_t held = 0;     // pushes that are there
    uint64_t needed = 0;   // that it takes
    uint64_t missing = 0;  // live workers without one, the culprit among them
  };
  Sender sender;
  PullId id;
  // The worker itself when its own push has not come.
  WorkerId culprit;
  std::string culprit_name;
  Clock64 culprit_clock;
  absl::Duration waited;
  // In quorum, when it waits for others.
  std::optional<OpenStep> step = std::nullopt;
  // The push of its own that it waits for, and that has not come.
  std::optional<Sequence> own_push = std::nullopt;
};

// Pushes (from, to] of this worker were answered once and are not in the state any more: a restore lost them.
struct LostAction {
  Sender sender;
  Sequence from;
  Sequence to;
};

using Action =
    std::variant<ApplyAction, DropAction, AnswerAction, ServeAction, RefuseAction, WaitingAction, LostAction>;
using Actions = std::vector<Action>;

}  // namespace slackline::ps

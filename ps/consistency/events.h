// Events that go into the consistency engine of a shard, and actions that come out of it. See engine.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"

namespace slackline::ps {

// Identity of a worker in one of its lives.
struct Sender {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const Sender&, const Sender&) = default;
};

enum class Outcome { kApplied, kDiscarded };
enum class DiscardReason { kNone, kLineage, kLate, kOutlier };

// Final answer to one sub-push.
struct Answer {
  Sequence sequence;
  Outcome outcome = Outcome::kApplied;
  DiscardReason reason = DiscardReason::kNone;
  // Version of the shard after the decision.
  Version version;
  // Staleness of the push in versions; 0 if discarded. For pushes that are answered before their step, the staleness at
  // acceptance.
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

// Complete sub-push, checked and staged.
struct PushEvent {
  Sender sender;
  Sequence sequence;
  // Version of this shard that the gradient was computed from.
  Version base;
  // Number of samples behind the gradient; at least 1.
  uint64_t samples = 1;
  // Time of this event.
  absl::Time at;
  // Norm of the gradient over the whole model, as the worker reports it: the same for all shards.
  double gradient_norm = 0;
  // Norm of the shard's part of the gradient, measured by the server; 0 if nothing depends on it.
  double part_norm = 0;
};

struct PullEvent {
  Sender sender;
  PullId id;
  // Largest sequence of the worker's own pushes that must have been answered first.
  Clock64 clock;
  // Number of this worker's pulls that may wait; a further pull replaces the oldest. At least 1.
  uint32_t waiting_max = 1;
};

struct MemberEntry {
  Sender sender;
  std::string name;
};

// Set of live workers: whole, or as a change of an earlier set.
struct MemberSet {
  Epoch epoch;
  // All workers of the set; of a change, the new ones. One that is live in an earlier incarnation goes first; one that
  // is live already stays.
  std::vector<MemberEntry> members = {};
  // Set that changes; nullopt: `members` is the whole set.
  std::optional<Epoch> since = {};
  // Workers that the change puts out. A number that is not live is ignored.
  std::vector<WorkerId> gone = {};
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
    // Version that the gradient was computed from.
    Version base;
  };
  std::vector<Part> parts;
  // Factor for the learning rate and decoupled weight decay, never for the gradient.
  double lr_scale = 1;
  // Fraction by which averaged buffers move towards the pushed mean: parts / live workers; 1 in bsp.
  double average_rate = 1;
  // Sum of the samples of the parts.
  uint64_t samples = 1;
  // Number of batches of one worker that the step counts as, for linear scaling of the learning rate: samples /
  // samples_nominal, or the number of pushes if each push counts as one batch. 1 if each push is a step.
  double batches = 1;
  // Number of live workers.
  uint64_t workers = 1;
  Version version;
};

// Release the staged bytes of a push that will not be applied.
struct DropAction {
  PushRef push;
};

struct AnswerAction {
  Sender sender;
  Answer answer;
  // True if this is the stored answer to a repeated push.
  bool repeated = false;
};

// Serve the pull from the version that is current at this place in the action list.
struct ServeAction {
  Sender sender;
  PullId id;
};

// Refuse a push or pull of this sender; it changed nothing. Staged bytes of the push, if any, are dropped by a separate
// DropAction.
struct RefuseAction {
  Sender sender;
  // Sequence of the refused push; 0 if a pull is refused.
  Sequence sequence;
  PullId pull;
  absl::Status status;
  // Sequence that the shard expects next, if the push has another: set with kFailedPrecondition or, for a push that was
  // answered long ago, kOutOfRange. 0 otherwise.
  Sequence expected;
};

// Tell the worker that its pull still waits, and for which worker.
struct WaitingAction {
  // Open step of a quorum.
  struct OpenStep {
    uint64_t held = 0;     // pushes that have arrived
    uint64_t needed = 0;   // pushes that complete the step
    uint64_t missing = 0;  // live workers without a push, the culprit included
  };
  Sender sender;
  PullId id;
  // Worker that is awaited: the sender itself if its own push has not come.
  WorkerId culprit;
  std::string culprit_name;
  Clock64 culprit_clock;
  absl::Duration waited;
  // Open step; set in quorum if the pull waits for other workers.
  std::optional<OpenStep> step = std::nullopt;
  // Sender's own push that the pull waits for, if that push has not come.
  std::optional<Sequence> own_push = std::nullopt;
};

// Report that pushes (from, to] of this worker were answered once but are no longer in the state: a restore lost them.
struct LostAction {
  Sender sender;
  Sequence from;
  Sequence to;
};

using Action =
    std::variant<ApplyAction, DropAction, AnswerAction, ServeAction, RefuseAction, WaitingAction, LostAction>;
using Actions = std::vector<Action>;

}  // namespace slackline::ps

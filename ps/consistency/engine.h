// The consistency engine of one shard: who may be applied when, and who may go on.
//
// A pure function with memory: events in, actions out. It has no thread, no clock and no I/O; the server runs it,
// and so do the simulator and the tests. It decides about sub-pushes by name (worker, sequence) and never sees a
// tensor: whoever runs it keeps the staged bytes and carries out the actions in the order given.
//
// Modes (job.proto, Consistency):
//   async  a push is applied as it arrives; a pull waits only for the worker's own pushes.
//   ssp    as async, and a pull at clock c waits until the slowest live worker's clock is at least c - staleness_max
//          (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", 2013).
//   bsp    pushes of one clock are held until every live worker's is there, then applied as one step; a pull at
//          clock c waits until the slowest live worker has clock c.
//
// Words: a worker's *clock* on this shard is the largest sequence that has a final answer; *slack* is a clock minus
// the slowest live worker's; *staleness* counts the versions applied between the pull that a gradient was computed
// from and its application.
//
// Thread-safety: none; the shard's sequencer calls it.
// Invariants:
//   - Answers are final and given once per (incarnation, sequence); repetitions get the stored one.
//   - A worker's answers are given in the order of sequence; its clock never falls within an incarnation.
//   - A push whose base has another lineage than the shard is never applied.
//   - No worker that is not in the installed membership is awaited or applied.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace slackline::ps {

enum class Mode { kAsync, kSsp, kBsp };

struct EngineConfig {
  Mode mode = Mode::kSsp;
  // ssp only.
  uint64_t staleness_max = 4;
  // Stored answers kept per worker; the window negotiated with a worker is at most this.
  uint32_t window_max = 64;
  // Samples of a push that count as one whole step under async and ssp (n_nominal); at least 1.
  uint64_t samples_nominal = 1;
  // Silence at a gate before a Waiting notice.
  absl::Duration notice_every = absl::Milliseconds(900);
};

// Who sends: a worker in one of its lives.
struct Sender {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const Sender&, const Sender&) = default;
};

enum class Outcome { kApplied, kDiscarded };
enum class DiscardReason { kNone, kLineage, kLate };

// The final word on one sub-push.
struct Answer {
  Sequence sequence;
  Outcome outcome = Outcome::kApplied;
  DiscardReason reason = DiscardReason::kNone;
  // The shard's version after the decision.
  Version version;
  // In versions; 0 when discarded.
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
  };
  std::vector<Part> parts;
  // Multiplies the learning rate and decoupled weight decay, never the gradient.
  double lr_scale = 1;
  // How far averaged buffers move towards the pushed mean: 1 / live workers, or 1 in bsp.
  double average_rate = 1;
  // Sum over the parts.
  uint64_t samples = 1;
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
  Sender sender;
  PullId id;
  WorkerId culprit;
  std::string culprit_name;
  Clock64 culprit_clock;
  absl::Duration waited;
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

// What a restored shard knows of a worker.
struct WorkerClock {
  Sender sender;
  Clock64 clock;
  std::deque<Answer> answers;
};

// The engine's own state at one marker: part of a snapshot of the shard.
struct EngineState {
  Version version;
  uint64_t samples_applied = 0;
  Clock64 clock_floor;
  std::vector<WorkerClock> workers;
};

// A state that the shard was in.
struct PastState {
  Version version;
  Clock64 clock_min;  // as Engine::clock_min() was then
};

class Engine {
 public:
  // A fresh shard at version (lineage 1, 0) without members.
  explicit Engine(const EngineConfig& config);
  // A shard restored from a snapshot: the lineage is raised by one, members are awaited from the scheduler.
  Engine(const EngineConfig& config, const EngineState& restored);

  // Installs the set of live workers. Known incarnations keep their state; new ones begin at the slowest live
  // clock; whoever is missing is fenced: held pushes are dropped, nobody waits for them.
  //   kFailedPrecondition  `epoch` is older than the installed one; nothing changed
  absl::Status SetMembers(Epoch epoch, absl::Span<const MemberEntry> members, Actions& actions);

  // A worker opens or resumes its stream. Waiting pulls of an earlier stream are forgotten. A worker that has
  // more answers than the shard knows is advanced to them; what was lost by that is reported.
  //   kFailedPrecondition  not a member, or another incarnation is
  absl::Status Hello(const HelloEvent& hello, Actions& actions);
  // The worker's stream has ended. Held pushes stay; waiting pulls are forgotten.
  void Disconnected(const Sender& sender);

  // What Push() would make of this sub-push: called at its first chunk, before bytes are staged.
  enum class Admission {
    kStage,   // stage it
    kIgnore,  // known already (answered or held): skip its chunks; Push() answers where there is an answer
    kRefuse,  // Push() refuses it
  };
  Admission Admit(const Sender& sender, Sequence sequence) const;

  void Push(const PushEvent& push, Actions& actions);
  void Pull(const PullEvent& pull, absl::Time now, Actions& actions);
  // Time has passed: gives Waiting notices.
  void Tick(absl::Time now, Actions& actions);

  Version version() const { return version_; }
  uint64_t samples_applied() const { return samples_applied_; }
  Epoch members_epoch() const { return epoch_; }
  size_t live_workers() const { return workers_.size(); }
  // The slowest live worker's clock; without members, the last one that was known.
  Clock64 clock_min() const;
  // Whether a pull at `clock` that is free to go may also be answered with an earlier state of the shard: it holds the
  // worker's own pushes up to `clock`, and the bound allowed it then. False where that is not known any more.
  bool MayServe(const PastState& past, const Sender& sender, Clock64 clock) const;
  // The worker's clock here; nullopt when it is not a member.
  std::optional<Clock64> clock(WorkerId worker) const;
  size_t waiting_pulls() const;
  size_t held_pushes() const;
  EngineState Snapshot() const;

  // For tests of the tests: a planted bug must be caught by the simulation.
  struct Bugs {
    bool ignore_lineage = false;
    bool no_fast_forward = false;
  };
  void PlantForTest(Bugs bugs) { bugs_ = bugs; }

 private:
  struct HeldPush {
    Version base;
    uint64_t samples = 0;
  };
  struct WaitingPull {
    PullId id;
    Clock64 clock;
    absl::Time since;
    absl::Time notice_at;
  };
  struct Worker {
    Incarnation incarnation;
    std::string name;
    Clock64 clock;
    std::deque<Answer> answers;         // final ones, oldest first, at most window_max
    std::map<Sequence, HeldPush> held;  // arrived, not answered
    std::vector<WaitingPull> pulls;     // oldest first
  };

  Worker* Find(const Sender& sender);
  const Worker* Find(const Sender& sender) const;
  absl::Status Unknown(const Sender& sender) const;
  // Applies and answers what the mode allows, then serves the pulls that are free.
  void Settle(Actions& actions);
  bool SettleBspStep(Actions& actions);
  void ApplyAlone(const Sender& sender, Worker& worker, const PushEvent& push, Actions& actions);
  void Finish(const Sender& sender, Worker& worker, const Answer& answer, Actions& actions);
  void DropHeld(const Sender& sender, Worker& worker, Actions& actions);
  bool MayGo(const Worker& worker, const WaitingPull& pull) const;
  // `min`: the slowest worker's clock.
  bool WithinBound(Clock64 min, Clock64 pull_clock) const;
  uint64_t Staleness(const Version& base) const;
  std::pair<WorkerId, const Worker*> Slowest() const;

  const EngineConfig config_;
  Bugs bugs_;
  Version version_;
  uint64_t samples_applied_ = 0;
  Epoch epoch_;
  Clock64 clock_floor_;                     // clock_min() as it was when the last member left
  std::map<WorkerId, Worker> workers_;      // live ones only
  std::map<Sender, WorkerClock> restored_;  // from the snapshot, until the scheduler names the members
};

}  // namespace slackline::ps

// The consistency engine of one shard decides when each push is applied and when each pull is served.
//
// The engine is a pure state machine: events in, actions out. It has no thread, no clock and no I/O; the server runs
// it, and so do the simulator and the tests. It knows sub-pushes by name (worker, sequence) and never sees a tensor:
// its caller keeps the staged bytes and carries out the actions in the order given.
//
// Modes (job.proto, Consistency):
//   async     A push is applied on arrival. A pull waits only for the worker's own pushes.
//   ssp       As async, and a pull at clock c waits until the slowest live worker's clock is at least c - staleness_max
//             (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", 2013).
//   bsp       Pushes of one clock are held until every live worker has sent its own, then applied as one step. A pull
//             at clock c waits until the slowest live worker has clock c.
//   softsync  Every max(1, floor(live workers / softsync_n)) pushes, from any workers, are one step (n-softsync; Zhang
//             et al., "Staleness-aware Async-SGD for Distributed Deep Learning", 2016). A push is answered as applied
//             when it is *accepted*. From then on it belongs to the state, even if its worker dies, but the worker's
//             next pull may come without it. One step may contain two pushes of one worker. If the set of live workers
//             becomes smaller, steps that are now full are applied; if it becomes empty, the remaining pushes are the
//             last step.
//   quorum    The open step takes pushes whose base is the shard's version, one per worker. The step is applied when
//             ceil(quorum x live workers) pushes are there, or at the first Tick() that is at least quorum_deadline
//             after its first push (Chen et al., "Revisiting Distributed Synchronous SGD", 2016). Other pushes are
//             late: they are discarded when their turn comes. A second push of a worker from the same base waits for
//             the answer to the first and is late then. A pull waits only for the worker's own pushes. Shards may
//             choose different sets of pushes. A worker whose push was late here may then wait for a step of another
//             shard, while that shard waits for a worker whose push is held here. If all missing pushes are those of
//             workers whose last push was late here, the step is applied without them, standstill_after its first push.
//
//             With count_late, late pushes are not discarded: they are answered on arrival and are part of the next
//             step, which they do not complete. In its mean each weighs 1 / (1 + staleness) of what it would weigh on
//             time, and the learning rate falls by the weighted mean of these factors (Xie et al., "Asynchronous
//             Federated Optimization", 2019, polynomial with a = 1). A worker's late pushes beyond window_max, since
//             the last step, are discarded.
//
//             With grace, a step that has its quorum waits for pushes that are likely to come, as long as the samples
//             per second rise, of which missing ones count more (BestEndOfStep(); the idea of a grace window is that of
//             Douillard et al., "Decoupled DiLoCo", 2026). Likely are pushes of workers that have pulled the shard's
//             version, at the times that each of them took before (TurnTimes). The first step after a start or a
//             restore has no grace.
//
// Weighting: bsp, softsync and quorum apply the mean of a step's pushes, weighted by samples or not. async and ssp
// apply each push alone, and scale the learning rate by samples / samples_nominal or not. With staleness_lr inverse
// (Zhang et al. 2016) each push counts 1 / max(1, staleness): async and ssp multiply the learning rate by this factor;
// softsync weights the mean by it and multiplies the learning rate by its weighted mean. bsp and quorum ignore it.
//
// Outliers: with outlier_factor, a push is an outlier if the norm of the shard's part of it is above that many times
// the median of the last 31 such norms, or if the same holds for the norm of the whole gradient, which the worker
// reports. An outlier is discarded on arrival, in every mode. A push is never treated as an outlier while earlier
// pushes from the same worker are held.
//
// Words: a worker's *clock* on this shard is the largest sequence that has a final answer; *slack* is a clock minus the
// slowest live worker's; *staleness* counts the versions applied between the pull that a gradient was computed from and
// the gradient's application. The answer to a push that is accepted before its step gives the staleness at acceptance.
// If the live workers become fewer, more than one step may be applied between acceptance and application; ApplyAction
// then gives the true staleness.
//
// Thread-safety: none; the shard's sequencer calls it.
// Cost:          Push(), Pull() and Hello() take logarithmic time in the number of live workers, plus the time for all
//                that they set free. With grace, an event may take n log n while a step with its quorum waits. A
//                change of the members takes that for each worker that comes or goes. A step of several pushes, a whole
//                set of members, Tick() and Snapshot() take linear time.
// Invariants:
//   - Answers are final and given once per (incarnation, sequence); repeated pushes get the stored answer.
//   - A worker's answers are given in the order of sequence; its clock never falls within an incarnation.
//   - A push whose base has another lineage than the shard is never applied.
//   - A worker outside the installed membership is never awaited, and its pushes are never applied, except those
//     accepted before.
//   - Accepted pushes are applied in the order of acceptance.
//   - In quorum a worker's oldest held push belongs to the open step: a late push is answered when it becomes the
//   oldest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/job/consistency_modes.h"
#include "ps/consistency/clock_counts.h"
#include "ps/consistency/events.h"
#include "ps/consistency/newest_incarnations.h"
#include "ps/consistency/norm_median.h"
#include "ps/consistency/turn_times.h"

namespace slackline::ps {

using Mode = ConsistencyMode;
enum class Weighting { kSamples, kUniform };
enum class StalenessLr { kNone, kInverse };

struct EngineConfig {
  Mode mode = Mode::kSsp;
  // ssp only: largest slack, until SetStalenessBound() sets another.
  uint64_t staleness_max = 4;
  // softsync only: number of steps made of as many pushes as there are live workers; at least 1.
  uint64_t softsync_n = 1;
  // quorum only: fraction of the live workers whose pushes complete a step; above 0, at most 1.
  double quorum = 0.75;
  // quorum only: time after a step's first push when the step is applied with fewer pushes; 0 means never.
  absl::Duration quorum_deadline;
  // quorum only: true if late pushes are part of the next step instead of being discarded.
  bool count_late = false;
  // quorum only: true if a step that has its quorum waits for pushes that are likely to come.
  bool grace = false;
  // quorum only: time after a step's first push when the step is applied without the missing pushes, if the last push
  // of all missing workers was late here.
  absl::Duration standstill_after = absl::Milliseconds(4800);
  Weighting weighting = Weighting::kSamples;
  StalenessLr staleness_lr = StalenessLr::kNone;
  // Multiple of the median norm above which a push is an outlier; 0 means that no push is.
  double outlier_factor = 0;
  // Number of stored answers per worker; the window negotiated with a worker is at most this.
  uint32_t window_max = 64;
  // Samples of one worker's batch (n_nominal), at least 1. Under async and ssp, a push of this many samples is one
  // whole step. Steps of several pushes are counted in this unit (ApplyAction::batches).
  uint64_t samples_nominal = 1;
  // Time that a pull waits before its first Waiting notice, and between notices.
  absl::Duration notice_every = absl::Milliseconds(900);
};

// State of one worker in a snapshot.
struct WorkerClock {
  Sender sender;
  Clock64 clock;
  std::vector<Answer> answers;
};

// State of the engine at one version of the shard; part of a snapshot of the shard.
//
// Pushes that were accepted but are not in the weights are left out: their worker's clock is the one before them, so
// that a restore reports them as lost. Members that never said Hello or pushed are left out too: after a restore they
// begin at the slowest clock, like others that join, and that clock may then be an earlier one.
struct EngineState {
  Version version;
  uint64_t samples_applied = 0;
  Clock64 clock_floor;
  std::vector<WorkerClock> workers;
  // Newest incarnation of each worker that is no longer a member.
  std::vector<Sender> gone = {};
};

// Earlier state of the shard, from which a pull may be answered.
struct PastState {
  Version version;
  Clock64 clock_min;  // Engine::clock_min() at that time
};

class Engine {
 public:
  // Makes a fresh shard at version (lineage 1, 0) without members.
  explicit Engine(const EngineConfig& config);
  // Restores a shard from a snapshot. The lineage rises by one; there are no members until the scheduler names them.
  Engine(const EngineConfig& config, const EngineState& restored);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Restores into an engine that is still as its constructor made it. The lineage is `lineage` or the one after the
  // snapshot's, whichever is larger: one snapshot may be restored more than once, and each restore has its own lineage.
  void Restore(const EngineState& restored, Lineage lineage);

  // Installs the set of live workers. Known incarnations keep their state; new ones begin at the slowest live clock.
  // Workers that are missing from the set are fenced: their held pushes are dropped, and nobody waits for them. A
  // change that is installed already changes nothing.
  //   kFailedPrecondition  the set is older than the installed one, or changes another one; nothing changed
  absl::Status SetMembers(const MemberSet& set, Actions& actions);
  // Returns the live workers that SetMembers() would put out.
  std::vector<Sender> PutOutBy(const MemberSet& set) const;

  // Sets the bound of ssp from now on. A larger bound serves the pulls that it sets free. A smaller bound holds for
  // waiting pulls too, but does not undo what was served. Other modes have no bound.
  void SetStalenessBound(uint64_t bound, Actions& actions);

  // Opens or resumes a worker's stream. Waiting pulls of an earlier stream are forgotten. If the worker has more
  // answers than the shard knows, its clock advances to them, and the pushes lost by that are reported.
  //   kFailedPrecondition  the sender is not a member, another incarnation is, or the sender was out of the set
  //                        meanwhile
  absl::Status Hello(const HelloEvent& hello, Actions& actions);
  // Returns what Hello() would return; changes nothing.
  absl::Status CheckHello(const HelloEvent& hello) const;
  // Handles the end of the worker's stream. Held pushes stay; waiting pulls are forgotten.
  void Disconnected(const Sender& sender);

  // Outcome that Push() would have for a sub-push. Callers ask at its first chunk, before its bytes are staged.
  enum class Admission {
    kStage,   // stage its bytes
    kIgnore,  // already answered or held: skip its chunks; Push() repeats the answer if there is one
    kRefuse,  // Push() refuses it
  };
  Admission Admit(const Sender& sender, Sequence sequence) const;

  void Push(const PushEvent& push, Actions& actions);
  void Pull(const PullEvent& pull, absl::Time now, Actions& actions);
  // Handles the passing of time: applies a step whose deadline has come, and gives Waiting notices.
  void Tick(absl::Time now, Actions& actions);

  Version version() const { return version_; }
  uint64_t samples_applied() const { return samples_applied_; }
  size_t live_workers() const { return workers_.size(); }
  // Clock of the slowest live worker; without members, the last such clock that was known.
  Clock64 clock_min() const;
  // Returns true if an earlier state of the shard may also answer a pull at `clock` that is free to go. The state must
  // hold the worker's own pushes up to `clock` (if pushes are answered first: the updates that were there when the last
  // of them was answered), and the bound must have allowed the pull then. In quorum only the current version will do.
  // Returns false if the engine no longer knows.
  bool MayServe(const PastState& past, const Sender& sender, Clock64 clock) const;
  // Returns the worker's clock on this shard; nullopt if it is not a member.
  std::optional<Clock64> clock(WorkerId worker) const;
  // Returns the workers of the snapshot and their clocks there; empty once the scheduler has named the members.
  const std::map<Sender, WorkerClock>& restored() const { return restored_; }
  bool IsMember(const Sender& sender) const { return Find(sender) != nullptr; }
  // Returns the worker's name; empty if it is not a member.
  absl::string_view name(WorkerId worker) const;
  size_t waiting_pulls() const;
  // Number of pushes that wait for their step, accepted ones included.
  size_t held_pushes() const;
  EngineState Snapshot() const;

 private:
  struct HeldPush {
    Version base;
    uint64_t samples = 0;
    absl::Time at;
  };
  // Push that is part of a step.
  struct Taken {
    PushRef push;
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
    bool heard = false;                 // true once the worker has said Hello or pushed
    std::vector<Answer> answers;        // final answers, oldest first, at most window_max
    std::map<Sequence, HeldPush> held;  // pushes that arrived and are not answered; without gaps from clock + 1 on
    std::vector<WaitingPull> pulls;     // oldest first
    std::optional<Clock64> gate;        // smallest clock under which gate_ lists the worker
    // With grace: version and time of the last pull that was served, times from pulls to pushes, and the samples of the
    // last push.
    Version pulled;
    absl::Time pulled_at;
    TurnTimes turns;
    uint64_t samples = 0;
  };
  // Keeps the indexes up to date. A worker's clock, held pushes and pulls change only while a Change for it exists.
  class Change {
   public:
    Change(Engine& engine, WorkerId id, Worker& worker) : engine_(engine), id_(id), worker_(worker) {
      engine_.Unlist(worker_);
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change() { engine_.List(id_, worker_); }

   private:
    Engine& engine_;
    const WorkerId id_;
    Worker& worker_;
  };

  Worker* Find(const Sender& sender);
  const Worker* Find(const Sender& sender) const;
  absl::Status Unknown(const Sender& sender) const;
  // Checks the samples, lineage and version of a push; the mode decides the rest.
  absl::Status CheckPush(const PushEvent& push, const Worker& worker) const;
  // Returns true if the push is an outlier that may be answered at once. Records its norms.
  bool Quarantines(const PushEvent& push, const Worker& worker);
  void List(WorkerId id, const Worker& worker);
  void Unlist(const Worker& worker);
  // Takes a live worker out of the set.
  void PutOut(WorkerId id, Actions& actions);
  // Serves the pulls that have become free to go.
  void ServePulls(Actions& actions);
  void ServePulls(WorkerId id, Worker& worker, Actions& actions);
  bool MayGo(const Worker& worker, const WaitingPull& pull) const;
  // `min`: clock of the slowest worker.
  bool WithinBound(Clock64 min, Clock64 pull_clock) const;
  // Returns the worker that is awaited by workers whose own pushes are there.
  WorkerId Culprit() const;
  // Returns the notice for a waiting pull of worker `id`, while pulls wait for the worker `awaited` (Culprit()).
  WaitingAction Notice(WorkerId id, const WaitingPull& pull, WorkerId awaited, absl::Time now) const;

  // --- Steps of each mode: steps.cc ---

  // Applies and answers what the mode allows, then serves the pulls that are free to go.
  void Settle(Actions& actions);
  void Take(const PushEvent& push, Worker& worker, Actions& actions);
  void ApplyAlone(const PushEvent& push, Worker& worker, Actions& actions);
  // Returns the step for the mean of these pushes, and moves the shard to its next version.
  ApplyAction Mean(const std::vector<Taken>& pushes, double average_rate);
  // Applies the mean of these held pushes, and of accepted late ones, as one step. Answers the held ones.
  void ApplyHeld(const std::vector<Taken>& pushes, double average_rate, Actions& actions);
  bool SettleBspStep(Actions& actions);
  // softsync only.
  void Accept(const PushEvent& push, Worker& worker, Actions& actions);
  size_t GroupSize() const;
  void ApplyFullGroups(Actions& actions);
  // Applies the `count` oldest accepted pushes as one step. Requires: count >= 1.
  void ApplyAccepted(size_t count, double average_rate, Actions& actions);
  // quorum only.
  size_t QuorumSize() const;
  // Number of live workers with a push in the open step.
  size_t OpenStepSize() const { return workers_.size() - missing_.size(); }
  std::vector<Taken> PushesOfOpenStep() const;
  bool Late(const HeldPush& push) const;
  // Discards or accepts the worker's next pushes that are late.
  void AnswerLate(WorkerId id, Worker& worker, Actions& actions);
  // Returns true if an open step that has its quorum should be applied now; else plans how long it waits.
  bool GraceIsOver();
  // Returns what this many samples count in the rate of a step.
  double CountsAs(uint64_t samples) const;
  // Returns true if the open step has waited for as long as it may.
  bool Overdue(absl::Time now) const;
  void ApplyOpenStep(Actions& actions);

  // Factors for the learning rate of a stale push, and for its weight in a mean.
  double LrFactor(uint64_t staleness) const;
  double MeanFactor(uint64_t staleness) const;
  uint64_t Staleness(const Version& base) const;
  // Gives the worker's next push its final answer, and removes it from the held pushes.
  void Finish(const Sender& sender, Worker& worker, const Answer& answer, Actions& actions);

  const EngineConfig config_;
  uint64_t staleness_bound_;
  Version version_;
  uint64_t samples_applied_ = 0;
  Epoch epoch_;
  Clock64 clock_floor_;                 // clock_min() when the last member left
  std::map<WorkerId, Worker> workers_;  // live ones only
  // Workers that ever were members. Once a worker is out, the engine no longer knows which of
  // its pushes were applied, so that incarnation must not come back. Storing an Incarnation takes less memory than
  // storing all of that.
  NewestIncarnations newest_;
  // Indexes of workers_; Change and SetMembers() maintain them.
  absl::flat_hash_map<WorkerId, Worker*> by_id_;
  ClockCounts clocks_;             // clocks of all workers
  ClockCounts missing_;            // clocks of workers whose next push is not held
  std::vector<WorkerId> stirred_;  // workers with pulls that may be free to go, and perhaps others
  // Workers by the smallest clock of their pulls that wait for other workers. An entry may be out of date: it stays
  // until the slowest worker has come so far, which costs less than to look for it in memory of so many workers.
  std::map<Clock64, std::vector<WorkerId>> gate_;

  absl::Time now_ = absl::InfinitePast();         // latest time of an event
  absl::Time stepped_at_ = absl::InfinitePast();  // time of the last step
  // With grace: largest samples per second of the open step so far, the end that is planned for it, and its pushes
  // then.
  double best_rate_ = 0;
  absl::Time planned_until_ = absl::InfinitePast();
  size_t planned_size_ = 0;

  NormMedian norms_;  // norms of whole gradients, reported by workers
  NormMedian part_norms_;

  std::deque<Taken> accepted_;              // softsync, and late ones of quorum: answered but not applied, oldest first
  std::map<Sender, WorkerClock> restored_;  // workers of the snapshot, until the scheduler names the members
};

}  // namespace slackline::ps

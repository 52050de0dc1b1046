// The consistency engine of one shard: who may be applied when, and who may go on.
//
// A pure function with memory: events in, actions out. It has no thread, no clock and no I/O; the server runs it,
// and so do the simulator and the tests. It decides about sub-pushes by name (worker, sequence) and never sees a
// tensor: whoever runs it keeps the staged bytes and carries out the actions in the order given.
//
// Modes (job.proto, Consistency):
//   async     a push is applied as it arrives; a pull waits only for the worker's own pushes.
//   ssp       as async, and a pull at clock c waits until the slowest live worker's clock is at least c - staleness_max
//             (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", 2013).
//   bsp       pushes of one clock are held until every live worker's is there, then applied as one step; a pull at
//             clock c waits until the slowest live worker has clock c.
//   softsync  every max(1, floor(live workers / softsync_n)) pushes, of any workers, are one step (n-softsync; Zhang et
//             al., "Staleness-aware Async-SGD for Distributed Deep Learning", 2016). A push is answered as applied when
//             it is *accepted*: it belongs to the state from then on, even when its worker dies, but the worker's next
//             pull may come without it. A worker may be in one step twice. When the set of live workers becomes
//             smaller, steps that are full by that are applied; when it becomes empty, what is left is the last step.
//   quorum    the open step takes pushes whose base is the shard's version, one a worker. It is applied when
//             ceil(quorum x live workers) are there, or at the first Tick() from quorum_deadline after its first push
//             on (Chen et al., "Revisiting Distributed Synchronous SGD", 2016). Other pushes are late: discarded when
//             their turn comes. A second push of a worker from the same base waits for the answer to the first and is
//             late then. A pull waits only for the worker's own pushes. Sets may differ between shards: a worker whose
//             push was discarded here may wait for a step of another shard, and that one for a worker whose push is
//             held here. When all missing pushes are such workers', the step is taken without them, standstill_after
//             its first push.
//
// Steps of several pushes are taken with their mean, weighted by samples or not; the others scale the learning rate by
// samples / samples_nominal or not. With staleness_lr inverse (Zhang et al. 2016) each push counts 1 / max(1,
// staleness): async and ssp multiply the learning rate by it; softsync weights the mean by it and multiplies the
// learning rate by the weighted mean of it. bsp and quorum ignore it.
//
// With outlier_factor, a push is an outlier if the norm of the shard's part of it is above that many times the median
// of the last 31, or if the norm that the worker reports for the whole gradient is. An outlier is discarded as it
// comes, in every mode. A push is never taken for one while earlier pushes of its worker are held.
//
// Words: a worker's *clock* on this shard is the largest sequence that has a final answer; *slack* is a clock minus
// the slowest live worker's; *staleness* counts the versions applied between the pull that a gradient was computed
// from and its application. An answer of softsync gives it as of acceptance: when the live workers become fewer, more
// than one step may be taken between that and its application, which says the true one.
//
// Thread-safety: none; the shard's sequencer calls it.
// Cost:          Push(), Pull() and Hello() take logarithmic time in the number of live workers, without what they set
//                free. A step of several pushes, a change of the members, Tick() and Snapshot() take linear time.
// Invariants:
//   - Answers are final and given once per (incarnation, sequence); repetitions get the stored one.
//   - A worker's answers are given in the order of sequence; its clock never falls within an incarnation.
//   - A push whose base has another lineage than the shard is never applied.
//   - No worker that is not in the installed membership is awaited or applied, but for what was accepted before.
//   - What is accepted is applied in the order of acceptance.
//   - In quorum a worker's oldest held push belongs to the open step: late ones are discarded as they become it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/consistency/clock_counts.h"
#include "ps/consistency/events.h"
#include "ps/consistency/norm_median.h"

namespace slackline::ps {

enum class Mode { kAsync, kSsp, kBsp, kSoftsync, kQuorum };
enum class Weighting { kSamples, kUniform };
enum class StalenessLr { kNone, kInverse };

struct EngineConfig {
  Mode mode = Mode::kSsp;
  // ssp only: until SetStalenessBound().
  uint64_t staleness_max = 4;
  // softsync only: steps that as many pushes as there are live workers make; at least 1.
  uint64_t softsync_n = 1;
  // quorum only: the fraction of the live workers, above 0 and at most 1, ...
  double quorum = 0.75;
  // ... and the time since the first push of a step after which it is taken with fewer; 0: never.
  absl::Duration quorum_deadline;
  // quorum only: so long a step waits for workers that were all discarded here.
  absl::Duration standstill_after = absl::Milliseconds(4800);
  Weighting weighting = Weighting::kSamples;
  StalenessLr staleness_lr = StalenessLr::kNone;
  // 0: nothing is an outlier.
  double outlier_factor = 0;
  // Stored answers kept per worker; the window negotiated with a worker is at most this.
  uint32_t window_max = 64;
  // Samples of one worker's batch (n_nominal): a push of so many is one whole step under async and ssp, and steps of
  // several pushes are counted in them (ApplyAction::batches). At least 1.
  uint64_t samples_nominal = 1;
  // Silence at a gate before a Waiting notice.
  absl::Duration notice_every = absl::Milliseconds(900);
};

// What a restored shard knows of a worker.
struct WorkerClock {
  Sender sender;
  Clock64 clock;
  std::deque<Answer> answers;
};

// The engine's own state at one marker: part of a snapshot of the shard. What was accepted and is not in the weights is
// not in it either: the worker's clock is the one before it, so that a restore reports it as lost. Members that were
// never heard of are not in it: like others that join they begin at the slowest clock, which may be an earlier one
// then.
struct EngineState {
  Version version;
  uint64_t samples_applied = 0;
  Clock64 clock_floor;
  std::vector<WorkerClock> workers;
  // The newest incarnations of workers that are no members any more.
  std::vector<Sender> gone = {};
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
  // The same, for one that is still as it was made, and under `lineage` if that is larger: one snapshot may be restored
  // more than once, and each time is a lineage of its own.
  void Restore(const EngineState& restored, Lineage lineage);

  // Installs the set of live workers. Known incarnations keep their state; new ones begin at the slowest live
  // clock; whoever is missing is fenced: held pushes are dropped, nobody waits for them.
  //   kFailedPrecondition  `epoch` is older than the installed one; nothing changed
  absl::Status SetMembers(Epoch epoch, absl::Span<const MemberEntry> members, Actions& actions);

  // ssp: the bound from now on. Pulls that a larger one lets go are served; those that wait already wait for no more
  // than a smaller one, and what was served stays so. Other modes have none.
  void SetStalenessBound(uint64_t bound, Actions& actions);

  // A worker opens or resumes its stream. Waiting pulls of an earlier stream are forgotten. A worker that has
  // more answers than the shard knows is advanced to them; what was lost by that is reported.
  //   kFailedPrecondition  not a member, or another incarnation is
  absl::Status Hello(const HelloEvent& hello, Actions& actions);
  // What Hello() would return; changes nothing.
  absl::Status CheckHello(const HelloEvent& hello) const;
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
  // Time has passed: takes a step whose deadline has come, gives Waiting notices.
  void Tick(absl::Time now, Actions& actions);

  Version version() const { return version_; }
  uint64_t samples_applied() const { return samples_applied_; }
  Epoch members_epoch() const { return epoch_; }
  size_t live_workers() const { return workers_.size(); }
  // The slowest live worker's clock; without members, the last one that was known.
  Clock64 clock_min() const;
  // Whether a pull at `clock` that is free to go may also be answered with an earlier state of the shard: it holds the
  // worker's own pushes up to `clock` (in softsync: what there was when the last of them was answered), and the bound
  // allowed it then. False where that is not known any more.
  bool MayServe(const PastState& past, const Sender& sender, Clock64 clock) const;
  // The worker's clock here; nullopt when it is not a member.
  std::optional<Clock64> clock(WorkerId worker) const;
  bool IsMember(const Sender& sender) const { return Find(sender) != nullptr; }
  // Empty when it is not a member.
  absl::string_view name(WorkerId worker) const;
  size_t waiting_pulls() const;
  // That wait for their step, accepted ones included.
  size_t held_pushes() const;
  EngineState Snapshot() const;

  // For tests of the tests: a planted bug must be caught by the simulation.
  struct Bugs {
    bool ignore_lineage = false;
    bool no_fast_forward = false;
    bool drop_accepted = false;  // of a worker that leaves
    bool take_late = false;
    bool no_dedupe = false;      // what a worker has not heard the answer of is forgotten
    bool keep_the_gone = false;  // they hold the clock
  };
  void PlantForTest(Bugs bugs) { bugs_ = bugs; }

 private:
  struct HeldPush {
    Version base;
    uint64_t samples = 0;
    absl::Time at;
  };
  // A push that a step is made of.
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
    bool heard = false;                 // has said Hello or pushed
    std::deque<Answer> answers;         // final ones, oldest first, at most window_max
    std::map<Sequence, HeldPush> held;  // arrived, not answered; without gaps from clock + 1 on
    std::vector<WaitingPull> pulls;     // oldest first
    std::optional<Clock64> gate;        // where it is in gate_
  };
  // A worker's clock, held pushes and pulls change only while one of these is there: it keeps the indexes.
  class Change {
   public:
    Change(Engine& engine, WorkerId id, Worker& worker) : engine_(engine), id_(id), worker_(worker) {
      engine_.Unlist(id_, worker_);
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
  void Remember(const Sender& sender);
  // This incarnation was a member, or an earlier one of the same worker than one that was.
  bool WasHere(const Sender& sender) const;
  // What the lineages and versions allow; the mode decides about the rest.
  absl::Status CheckPush(const PushEvent& push, const Worker& worker) const;
  // An outlier that may be answered at once. Remembers the norms.
  bool Quarantines(const PushEvent& push, const Worker& worker);
  static void DropHeld(const Sender& sender, const Worker& worker, Actions& actions);
  void List(WorkerId id, const Worker& worker);
  void Unlist(WorkerId id, Worker& worker);
  void ListAll();
  // Answers the pulls that have come free.
  void ServePulls(Actions& actions);
  void ServePulls(WorkerId id, Worker& worker, Actions& actions);
  bool MayGo(const Worker& worker, const WaitingPull& pull) const;
  // `min`: the slowest worker's clock.
  bool WithinBound(Clock64 min, Clock64 pull_clock) const;
  // Whom those wait for whose own pushes are there.
  WorkerId Culprit() const;
  // What the worker is told of a pull of its own, when all wait for `awaited`.
  WaitingAction Notice(WorkerId id, const WaitingPull& pull, WorkerId awaited, absl::Time now) const;

  // What the modes make of pushes: steps.cc.

  // Applies and answers what the mode allows, then serves the pulls that are free.
  void Settle(Actions& actions);
  void Take(const PushEvent& push, Worker& worker, Actions& actions);
  void ApplyAlone(const PushEvent& push, Worker& worker, Actions& actions);
  // The step for the mean of these pushes, which takes the shard to its next version.
  ApplyAction Mean(const std::vector<Taken>& pushes, double average_rate);
  // The same; they were held, and are answered.
  void ApplyHeld(const std::vector<Taken>& pushes, double average_rate, Actions& actions);
  bool SettleBspStep(Actions& actions);
  // softsync.
  void Accept(const PushEvent& push, Worker& worker, Actions& actions);
  size_t GroupSize() const;
  void ApplyFullGroups(Actions& actions);
  // The oldest of the accepted ones, at least 1.
  void ApplyAccepted(size_t count, double average_rate, Actions& actions);
  // Takes what a planted bug loses out of the accepted ones.
  void ForgetAccepted(Actions& actions);
  // quorum.
  size_t QuorumSize() const;
  // Live workers with a push in the step that is open.
  size_t OpenStepSize() const { return workers_.size() - missing_.size(); }
  std::vector<Taken> OpenStep() const;
  bool Late(const HeldPush& push) const;
  void DiscardLate(WorkerId id, Worker& worker, Actions& actions);
  // Whether the step that is open has waited for as long as it may.
  bool Overdue(absl::Time now) const;
  void ApplyOpenStep(Actions& actions);

  double LrFactor(uint64_t staleness) const;
  uint64_t Staleness(const Version& base) const;
  // The worker's next push has its answer, and is not held any more.
  void Finish(const Sender& sender, Worker& worker, const Answer& answer, Actions& actions);

  const EngineConfig config_;
  uint64_t staleness_bound_;
  Bugs bugs_;
  Version version_;
  uint64_t samples_applied_ = 0;
  Epoch epoch_;
  Clock64 clock_floor_;                 // clock_min() as it was when the last member left
  std::map<WorkerId, Worker> workers_;  // live ones only
  // The newest incarnation of each worker that ever was a member. Of one that is out it is not known any more which of
  // its pushes were applied, so that it does not come back: an Incarnation takes less than all that.
  std::map<WorkerId, Incarnation> newest_;
  // Of workers_; see Change.
  ClockCounts clocks_;                           // of all of them
  ClockCounts missing_;                          // of those whose next push is not held
  std::set<WorkerId> stirred_;                   // have pulls that may have come free
  std::set<std::pair<Clock64, WorkerId>> gate_;  // whose pulls up to this clock wait for others, not for its own pushes

  NormMedian norms_;  // as workers say
  NormMedian part_norms_;

  std::deque<Taken> accepted_;              // softsync: answered, not applied; oldest first
  std::map<Sender, WorkerClock> restored_;  // from the snapshot, until the scheduler names the members
};

}  // namespace slackline::ps

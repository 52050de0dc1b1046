// The scheduler's membership as a pure state machine: who belongs to the job, and who is alive.
//
// Events go in, actions come out; no thread, no clock, no I/O. The scheduler and the simulator both run it.
//
// Servers: after a server registers, it gets the whole worker set, and then the changes, under an epoch that rises. It
// acknowledges each set. Changes that happen while a set is on its way go out together afterwards: a thousand workers
// that join at once are a few sets, not a thousand.
//
// Workers: a worker registers, gets a new incarnation, and is in the set from then on. It is *live* once every live
// server has acknowledged a set that has it; its first clock is then the largest of the slowest clocks that the servers
// named. A worker that leaves, stands by or falls silent is out of the set at once. It is *fenced* once every live
// server has acknowledged a set without it, and only then may its data ranges go to others.
//
// Thread-safety: none.
// Cost:          An event of one worker takes logarithmic time in the number of workers, plus the time for the changes
//                that go to servers. A whole set, Tick() and the state take linear time.
// Invariants:
//   - Each incarnation is given once, and later ones are larger.
//   - A fenced incarnation is in no server's set, and never will be again.
//   - A worker is live only when every live server has it.
//   - Each worker number is given to one worker; memory of workers that left or died is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/time/timeouts.h"

namespace slackline::scheduler {

enum class WorkerState { kJoining, kLive, kStandby, kLeft, kDead };
inline constexpr size_t kWorkerStates = 5;
// Largest number that a worker of a run may have.
inline constexpr uint32_t kWorkerNumberMax = 1u << 31;
enum class ServerState { kLive, kDead, kLeft };

absl::string_view ToString(WorkerState state);
absl::string_view ToString(ServerState state);

struct MemberRef {
  WorkerId worker;
  Incarnation incarnation;
  std::string name;

  friend bool operator==(const MemberRef&, const MemberRef&) = default;
};

// Asks to send the set to the server, and to repeat that until the set is acknowledged or replaced by a later one.
struct SendMembersAction {
  ServerId server;
  Incarnation server_incarnation;
  Epoch epoch;
  // Set that the server has acknowledged, and that this one is a change of; nullopt: the server gets the whole set.
  std::optional<Epoch> since;
  std::vector<MemberRef> members;  // all, or those that are new
  std::vector<WorkerId> gone;      // those that are out
};

struct WorkerLiveAction {
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
};

// Says that no server will take anything of this incarnation any more: its data may be given out again.
struct WorkerFencedAction {
  WorkerId worker;
  Incarnation incarnation;
};

struct WorkerDeadAction {
  WorkerId worker;
  Incarnation incarnation;
  std::string reason;
};

struct ServerDeadAction {
  ServerId server;
  Incarnation incarnation;
  std::string reason;
};

using MembershipAction =
    std::variant<SendMembersAction, WorkerLiveAction, WorkerFencedAction, WorkerDeadAction, ServerDeadAction>;
using MembershipActions = std::vector<MembershipAction>;

class Membership {
 public:
  struct Config {
    Timeouts timeouts;
    // Number of server places that the job begins with.
    uint32_t servers = 1;
    uint32_t workers_max = 65536;
    // Largest number of workers that left or died and are remembered.
    size_t departed_max = 1000;
    // Silence after which a server without a backup is dead; for a server with a backup it is timeouts.server_dead().
    // 0: the same for both.
    absl::Duration server_silence_max;
  };

  struct Worker {
    std::string name;
    Incarnation incarnation;
    WorkerState state = WorkerState::kJoining;
    Epoch joined_epoch;   // first set with this incarnation
    Clock64 first_clock;  // known once live
    absl::Time heard;
    absl::Time excused_until = absl::InfinitePast();
    std::string reason;     // reason why it left or died
    uint64_t departed = 0;  // place in the order of departures; 0: not departed
  };

  struct Server {
    std::string name;
    std::string address;
    Incarnation incarnation;
    ServerState state = ServerState::kLive;
    Epoch sent;  // latest set; only one at a time is on its way
    Epoch acknowledged;
    Clock64 clock_min_largest;  // value reported with `acknowledged`
    absl::Time heard;
    std::string reason;
    // True if a backup takes the server's place at once: the server then counts as dead early.
    bool backed = false;
  };

  struct Registered {
    uint32_t id = 0;
    Incarnation incarnation;
  };

  explicit Membership(const Config& config);

  // Registers a server. A name that is known comes back as the same server with a new incarnation.
  //   kFailedPrecondition  other servers have taken all places
  absl::StatusOr<Registered> RegisterServer(const std::string& name, const std::string& address, absl::Time now,
                                            MembershipActions& actions);
  // Registers a new worker, or with `previous` a worker that was on standby, left or dead: same number, new
  // incarnation.
  //   kInvalidArgument    `previous` is not a worker
  //   kResourceExhausted  workers_max workers are live or joining, or no number is left
  absl::StatusOr<Registered> RegisterWorker(const std::string& name, std::optional<WorkerId> previous, absl::Time now,
                                            MembershipActions& actions);

  // Returns an incarnation for a process that is not a member yet.
  Incarnation NewIncarnation() { return last_incarnation_ = last_incarnation_.Next(); }
  // Gives the server's place to another process, or to the same process with other shards, and sends it the set.
  // Requires: the server exists, or AddPlace() has made its place.
  void ReplaceServer(ServerId id, const std::string& name, const std::string& address, Incarnation incarnation,
                     absl::Time now, MembershipActions& actions);
  void SetBacked(ServerId server, Incarnation incarnation, bool backed);
  // Adds a place for one more server, which ReplaceServer() will name.
  void AddPlace() { ++places_; }
  void SetPlaces(uint32_t places) { places_ = places; }
  // Number of server places of the job.
  uint32_t places() const { return places_; }
  // Removes a server that has no shards any more, and its place. Requires: the server exists.
  void RemoveServer(ServerId id, MembershipActions& actions);

  // Note a sign of life.
  //   kFailedPrecondition  the incarnation is no longer a member; the message says why
  absl::Status HeartbeatServer(ServerId server, Incarnation incarnation, absl::Time now);
  absl::Status HeartbeatWorker(WorkerId worker, Incarnation incarnation, absl::Time now);

  // Notes that the server has installed the set of `epoch`. `clock_min_largest`: the largest slowest clock of its
  // shards.
  void MembersInstalled(ServerId server, Incarnation server_incarnation, Epoch epoch, Clock64 clock_min_largest,
                        MembershipActions& actions);

  // Takes a worker out of the set in good order. Repeated calls change nothing.
  void Standby(WorkerId worker, Incarnation incarnation, MembershipActions& actions);
  void Leave(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions);
  // Removes a worker that is known to be dead (a supervisor saw it end, or it stalled).
  void Expel(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions);
  void ServerLost(ServerId server, Incarnation incarnation, std::string reason, MembershipActions& actions);

  // Forgets the workers that left or died first, while more than departed_max are remembered; returns them. Their
  // numbers are never given again, and CountIn() still counts them. A worker that is not fenced yet is remembered.
  std::vector<WorkerId> ForgetDeparted();

  // True if workers that are out of the set are not fenced yet.
  bool Fences() const { return !unfenced_.empty(); }

  // Excuses the worker's silence up to `until`: it does not count as death. A time in the past takes the excuse back.
  void Excuse(WorkerId worker, Incarnation incarnation, absl::Time until);

  // Sends the set again under a new epoch, for the sake of what travels with it, for example the bound of ssp.
  void SendAgain(MembershipActions& actions) { ChangeSet(std::nullopt, actions); }

  // State of a membership, without what all members will be told again.
  struct State {
    Epoch epoch;
    Incarnation last_incarnation;
    std::map<WorkerId, Worker> workers;
    std::map<ServerId, Server> servers;
    WorkerId last_worker;
    size_t left_forgotten = 0;
    size_t dead_forgotten = 0;
  };
  State Save() const;
  // Notes that this process listened to nobody for `gap`, up to `now`: that time counts as no member's silence.
  void Overslept(absl::Duration gap, absl::Time now);

  // Continues a job from a saved state. Requires: a membership as constructed. All members count as heard just now, and
  // the set is sent again. Holders of data ranges (`holders`) that are not in the set are fenced by it. Numbers
  // continue far beyond those that an earlier scheduler may have given after its last save.
  void Restore(State state, absl::Span<const std::pair<WorkerId, Incarnation>> holders, absl::Time now,
               MembershipActions& actions);

  // Declares members dead that were silent for too long.
  void Tick(absl::Time now, MembershipActions& actions);

  Epoch epoch() const { return epoch_; }
  const std::map<WorkerId, Worker>& workers() const { return workers_; }
  // Returns the numbers of the remembered workers with this name.
  std::vector<WorkerId> Named(const std::string& name) const;
  const std::map<ServerId, Server>& servers() const { return servers_; }
  // Returns the workers in the set: joining or live.
  std::vector<MemberRef> Members() const;
  // Largest number that a worker was given.
  WorkerId last_worker() const { return last_worker_; }
  size_t CountLive() const { return CountIn(WorkerState::kLive); }
  // Counts the workers in a state, forgotten ones included.
  size_t CountIn(WorkerState state) const { return counts_[static_cast<size_t>(state)]; }
  bool AllServersPresent() const;

 private:
  // An incarnation that has left the set, until every live server has installed a set without it.
  struct Unfenced {
    WorkerId worker;
    Incarnation incarnation;
    Epoch left_epoch;
  };

  // Begins a new set. `changed`: the worker that came or went; nullopt: none did.
  void ChangeSet(std::optional<WorkerId> changed, MembershipActions& actions);
  // Adds to `action` the changes since the set that the server has acknowledged, or the whole set.
  void Describe(const Server& server, SendMembersAction& action) const;
  // Sends the set to the server, unless an earlier set is on its way or the server was sent this one.
  void SendSet(ServerId id, Server& server, MembershipActions& actions);
  void Enter(WorkerId id, Worker& worker, WorkerState state);
  void Remove(WorkerId id, Worker& worker, WorkerState state, std::string reason, MembershipActions& actions);
  void LoseServer(ServerId id, Server& server, ServerState state, std::string reason, MembershipActions& actions);
  // Finds the workers that the latest acknowledgement has made live or fenced.
  void Settle(MembershipActions& actions);
  Worker* Find(WorkerId worker, Incarnation incarnation);

  const Config config_;
  uint32_t places_;
  Epoch epoch_;
  Incarnation last_incarnation_;
  std::map<WorkerId, Worker> workers_;
  std::set<std::pair<std::string, WorkerId>> names_;  // of workers_
  WorkerId last_worker_;
  std::array<size_t, kWorkerStates> counts_ = {};  // workers by state, forgotten ones included
  // Workers that changed, by the set that they changed in; the sets up to changes_from_ are forgotten.
  std::map<Epoch, WorkerId> changes_;
  Epoch changes_from_;
  // Workers in state kJoining, by their joined_epoch.
  std::set<std::pair<Epoch, WorkerId>> joining_;
  // Workers that left or died, in that order.
  std::map<uint64_t, WorkerId> departed_;
  uint64_t departures_ = 0;
  std::map<ServerId, Server> servers_;
  std::deque<Unfenced> unfenced_;  // in the order of left_epoch
};

}  // namespace slackline::scheduler

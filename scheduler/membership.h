// Who belongs to the job, and who is alive: the scheduler's membership as a pure state machine.
//
// Events in, actions out; no thread, no clock, no I/O. The scheduler runs it, and so does the simulator.
//
// A server registers, then the worker set is sent to it as a whole when it changes, under an epoch that rises; it
// acknowledges each. What changes meanwhile goes out together after that: a thousand workers that join at once are a
// few sets, not a thousand. A worker registers, gets a new incarnation, is in the set from then on, and is *live* once
// every live server has acknowledged a set that has it; its first clock is then the largest slowest clock that the
// servers named. A worker that leaves, stands by, or falls silent is out of the set at once; it is *fenced* once
// every live server has acknowledged a set without it, and only then may its data ranges go to others.
//
// Thread-safety: none.
// Invariants:
//   - An incarnation is given once, and later ones are larger.
//   - A fenced incarnation is in no server's set, and never will be again.
//   - A worker is live only when every live server has it.
//   - A worker's number is given to one worker; memory of those that left or died is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/timeouts.h"

namespace slackline::scheduler {

enum class WorkerState { kJoining, kLive, kStandby, kLeft, kDead };
inline constexpr size_t kWorkerStates = 5;
// Numbers that workers of one run may have.
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

// Send the set to the server; repeat until it is acknowledged or replaced by a later one.
struct SendMembersAction {
  ServerId server;
  Incarnation server_incarnation;
  Epoch epoch;
  std::vector<MemberRef> members;
};

struct WorkerLiveAction {
  WorkerId worker;
  Incarnation incarnation;
  Clock64 first_clock;
};

// No server will take anything of this incarnation any more: its data may be given out again.
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
    // Server places that the job begins with.
    uint32_t servers = 1;
    uint32_t workers_max = 65536;
    // Workers that left or died and are remembered.
    size_t departed_max = 1000;
    // Silence after which a server is dead that is not backed; of one that is, it is timeouts.server_dead(). 0: the
    // same for both.
    absl::Duration server_silence_max;
  };

  struct Worker {
    std::string name;
    Incarnation incarnation;
    WorkerState state = WorkerState::kJoining;
    Epoch joined_epoch;   // the first set with this incarnation
    Clock64 first_clock;  // once live
    absl::Time heard;
    absl::Time excused_until = absl::InfinitePast();
    std::string reason;     // why it left or died
    uint64_t departed = 0;  // counts departures; 0: it is there
  };

  struct Server {
    std::string name;
    std::string address;
    Incarnation incarnation;
    ServerState state = ServerState::kLive;
    Epoch sent;  // the latest set; one at a time is on its way
    Epoch acknowledged;
    Clock64 clock_min_largest;  // as of `acknowledged`
    absl::Time heard;
    std::string reason;
    // Another takes its place at once: it is believed dead early.
    bool backed = false;
  };

  struct Registered {
    uint32_t id = 0;
    Incarnation incarnation;
  };

  explicit Membership(const Config& config);

  // A server by this name; a name that is known comes back as the same server with a new incarnation.
  //   kFailedPrecondition  all places are taken by others
  absl::StatusOr<Registered> RegisterServer(const std::string& name, const std::string& address, absl::Time now,
                                            MembershipActions& actions);
  // A new worker, or with `previous` one that was on standby, left or dead: same number, new incarnation.
  //   kInvalidArgument    `previous` is not a worker
  //   kResourceExhausted  workers_max live workers are there, or no number is left
  absl::StatusOr<Registered> RegisterWorker(const std::string& name, std::optional<WorkerId> previous, absl::Time now,
                                            MembershipActions& actions);

  // For somebody who is not a member yet.
  Incarnation NewIncarnation() { return last_incarnation_ = last_incarnation_.Next(); }
  // Another process, or the same with other shards, has this server's place from now on, and gets the set. Requires:
  // there is such a server, or AddPlace().
  void ReplaceServer(ServerId id, const std::string& name, const std::string& address, Incarnation incarnation,
                     absl::Time now, MembershipActions& actions);
  void SetBacked(ServerId server, Incarnation incarnation, bool backed);
  // The job is to have one more server, for ReplaceServer() to name.
  void AddPlace() { ++places_; }
  void SetPlaces(uint32_t places) { places_ = places; }
  // Server places of the job.
  uint32_t places() const { return places_; }
  // The server has no shards any more: it and its place are gone. Requires: there is such a server.
  void RemoveServer(ServerId id, MembershipActions& actions);

  //   kFailedPrecondition  that incarnation is not a member any more; the message says why
  absl::Status HeartbeatServer(ServerId server, Incarnation incarnation, absl::Time now);
  absl::Status HeartbeatWorker(WorkerId worker, Incarnation incarnation, absl::Time now);

  // The server has installed the set of `epoch`; `clock_min_largest` is the largest slowest clock of its shards.
  void MembersInstalled(ServerId server, Incarnation server_incarnation, Epoch epoch, Clock64 clock_min_largest,
                        MembershipActions& actions);

  // Takes a worker out of the set in good order. Repeated calls change nothing.
  void Standby(WorkerId worker, Incarnation incarnation, MembershipActions& actions);
  void Leave(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions);
  // Somebody knows that it is dead (a supervisor saw it end, or it stalled).
  void Expel(WorkerId worker, Incarnation incarnation, std::string reason, MembershipActions& actions);
  void ServerLost(ServerId server, Incarnation incarnation, std::string reason, MembershipActions& actions);

  // Forgets the workers that left or died first, while more than departed_max are remembered; returns them. Their
  // numbers are never given again, and CountIn() still counts them. A worker that is not fenced yet is remembered.
  std::vector<WorkerId> ForgetDeparted();

  // Until then the worker's silence is no death; a time that is over takes it back.
  void Excuse(WorkerId worker, Incarnation incarnation, absl::Time until);

  // The set goes out again under a new epoch, for the sake of what travels with it.
  void SendAgain(MembershipActions& actions) { ChangeSet(actions); }

  // All there is of a membership, but for what everybody will be told anew.
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
  // For so long, until now, nobody was listened to: it counts as nobody's silence.
  void Overslept(absl::Duration gap, absl::Time now);

  // Of a job that goes on, for a membership that is still as it was made. Everybody counts as heard just now, and gets
  // the set anew; `holders`, who have data ranges, are fenced by it where they are not in it. Numbers go on far behind
  // those that an earlier scheduler may have given after it had last saved.
  void Restore(State state, absl::Span<const std::pair<WorkerId, Incarnation>> holders, absl::Time now,
               MembershipActions& actions);

  // Declares dead who was silent too long.
  void Tick(absl::Time now, MembershipActions& actions);

  Epoch epoch() const { return epoch_; }
  const std::map<WorkerId, Worker>& workers() const { return workers_; }
  const std::map<ServerId, Server>& servers() const { return servers_; }
  // In the set: joining or live.
  std::vector<MemberRef> Members() const;
  // The largest number that a worker was given.
  WorkerId last_worker() const { return last_worker_; }
  size_t CountLive() const { return CountIn(WorkerState::kLive); }
  // Forgotten workers included.
  size_t CountIn(WorkerState state) const { return counts_[static_cast<size_t>(state)]; }
  bool AllServersPresent() const;

 private:
  // An incarnation that has left the set, until every live server has installed a set without it.
  struct Unfenced {
    WorkerId worker;
    Incarnation incarnation;
    Epoch left_epoch;
  };

  void ChangeSet(MembershipActions& actions);
  // Unless an earlier set is on its way, or it has this one.
  void SendSet(ServerId id, Server& server, MembershipActions& actions);
  void Enter(WorkerId id, Worker& worker, WorkerState state);
  void Remove(WorkerId id, Worker& worker, WorkerState state, std::string reason, MembershipActions& actions);
  void LoseServer(ServerId id, Server& server, ServerState state, std::string reason, MembershipActions& actions);
  // Finds who has become live or fenced by the latest acknowledgement.
  void Settle(MembershipActions& actions);
  Worker* Find(WorkerId worker, Incarnation incarnation);

  const Config config_;
  uint32_t places_;
  Epoch epoch_;
  Incarnation last_incarnation_;
  std::map<WorkerId, Worker> workers_;
  WorkerId last_worker_;
  std::array<size_t, kWorkerStates> counts_ = {};  // by state, those that are forgotten included
  // Who left or died, in that order.
  std::map<uint64_t, WorkerId> departed_;
  uint64_t departures_ = 0;
  std::map<ServerId, Server> servers_;
  std::vector<Unfenced> unfenced_;
};

}  // namespace slackline::scheduler

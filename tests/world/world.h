// A whole cluster in virtual time and in one thread: real shard tables, a real controller, real sessions, on a network
// and a disk that fail; from their start to the end of the job. One seed decides everything.
//
// What happens when
//   start       the processes come up, a healthy job begins, all shards get their first snapshots
//   faults      for Options::faults_for, in one world of ten from the very beginning: what the seed has drawn. Whoever
//   dies is started again a little later, as
//               `slackline train` does it; whoever is stopped for long is killed and replaced, or replaced elsewhere
//   calm        nothing more goes wrong: all must find each other and the job must be done
//
// In a share of the worlds each server has a backup (durability.mode replicated): twice as many processes. There,
// whatever was answered as applied is there at the end; the job may fail, with a message, only where a server and its
// backup were hit before the two were whole again (world_pairs.cc).
//
// How long anything may take
//   kBegin      until training begins and all shards are on disk: nothing is wrong yet
//   kCalmAfter  from the end of the faults until nobody suffers from them: a death is noticed after 16 T (3.2 s), after
//   as
//               much again where the scheduler itself had slept; then comes a restart (3 s), and a back-off (2 s)
//   kStuck      in the calm, until anything moves on: any push, pull, answer, lease. No wait is longer: a standstill
//               of quorum 16 T, a gate as long as the slowest worker's step, a join a few T
//   kFinish     in the calm, until the job is done: what is left to do takes one worker alone less. With a quorum each
//   step
//               may be a standstill of 16 T: shards that have discarded each other's workers may do so again and again
//   kEnd        from there until all processes have ended: the farewell waits 5 s for somebody to ask for the status,
//   and
//               who comes too late looks for the scheduler for timeouts.startup (60 s)
//   kFailover   until a backup has taken over from a server that dies or is stopped while nothing else is wrong: 6 T,
//   and
//               the ticks at which the scheduler cannot save
// Beside these, in the calm, whoever awaits something of a server hears from it every 2 x 3 T (exchange.cc).
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/world/scene.h"
#include "tests/world/scheduler.h"
#include "tests/world/server.h"
#include "tests/world/worker.h"

namespace slackline::world {

inline constexpr absl::Duration kBegin = absl::Seconds(60);
inline constexpr absl::Duration kCalmAfter = absl::Seconds(12);
inline constexpr absl::Duration kStuck = absl::Seconds(20);
inline constexpr absl::Duration kFinish = absl::Seconds(120);
inline constexpr absl::Duration kFinishQuorum = absl::Seconds(600);
inline constexpr absl::Duration kEnd = absl::Seconds(70);
inline constexpr int kFailover = 6;  // T

// Thread-safety: none; used once.
class World {
 public:
  explicit World(const Options& options);
  ~World();

  Outcome Run();

 private:
  void Begin();
  // Training has begun and all shards are on disk.
  bool Ready();
  void CheckDeadlines();
  // A job that cannot come back from what has happened to it ends as failed; before its shards are on disk that may be.
  void Failed(const std::string& reason);
  bool MayFail(const std::string& reason);
  bool Live(const Sender& sender);
  void Violate(const std::string& what);
  void Note(const std::string& line);

  // --- world_faults.cc ---
  void PlanFaults();
  void Plan(Fault fault, uint64_t most, void (World::*what)(Random& random));
  void BreakStream(Random& random);
  void SlowDown(Random& random);
  void LoseCalls(Random& random);
  void RepeatCalls(Random& random);
  void Separate(Random& random);
  void CrashServer(Random& random);
  void CrashWorker(Random& random);
  void CrashScheduler(Random& random);
  void PauseOne(Random& random);
  void FailDisk(Random& random);
  void CrashAndTear(Random& random);
  void ComeAndGo(Random& random);
  void ChangeServers(Random& random);
  void Crash(ServerProcess& server, bool tear, Random& random);
  // No fault lasts longer than all of them.
  absl::Time Until(absl::Duration wait) const { return std::min(events_.Now() + wait, faults_end_); }
  Host* Anybody(Random& random);
  ServerProcess* AnyServer(Random& random);

  // --- world_pairs.cc: servers and their backups ---
  struct Pair {
    bool ever = false;   // it was whole
    uint64_t blows = 0;  // since it was whole last
  };
  struct Failover {
    ServerId server;
    Incarnation dead;
    absl::Time since;
    uint64_t saves_missed = 0;
  };
  void WatchPairs();
  bool IsWhole(const state::Backup& saved, const wire::GetStatusReply& status) const;
  ServerProcess* Find(uint64_t incarnation) const;
  const ServerProcess* ServerOf(const Host* host) const;
  // Something goes wrong for this server or its backup.
  void Blow(ServerId server);
  void BlowAll();
  void BlowBetween(const Host* a, const Host* b);
  // This server dies, or is stopped for long: its backup is to take over.
  void ExpectFailover(const ServerProcess& server);
  void CheckFailover();
  bool MayFailTwice(const std::string& reason);
  void Part(Host& host);

  // --- lives ---
  void StartScheduler();
  void StartServer(const std::string& name, const std::string& address);
  void StartWorker(const std::string& name);
  void RestartServer(const std::string& name, const std::string& address);
  void RestartWorker(const std::string& name);
  void Ended(Host& host, const absl::Status& status);
  // The object is destroyed.
  void Bury(Host& host, bool silently);
  void ReportExit(const std::string& name, wire::MemberRole role);
  std::string NewAddress();
  bool Present(const std::string& server) const;

  const Options options_;
  Outcome outcome_;
  Random setup_, faults_, lives_;
  Events events_;
  Network network_;
  MemoryDisk disk_;
  Metrics metrics_registry_;
  ps::ServiceMetrics metrics_;
  const job::Job job_;
  Ledger ledger_;
  Scene scene_;
  uint32_t drawn_ = 0;  // kinds of faults
  std::deque<std::string> trace_;
  // Somebody who makes calls for people and for the supervisor.
  Host supervisor_;

  std::unique_ptr<SchedulerProcess> scheduler_;
  std::string scheduler_address_ = "nowhere";
  std::vector<std::unique_ptr<ServerProcess>> servers_;  // also those that were replaced and are stopped
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  uint32_t last_pid_ = 0;
  uint64_t last_address_ = 0;
  uint64_t servers_added_ = 0;
  std::set<std::string> drained_;  // were told to leave

  const bool replicated_;
  std::map<ServerId, Pair> pairs_;
  std::optional<Failover> failover_;
  std::set<LifeId> compared_;

  const bool early_;     // nobody waits until all is well
  bool failed_ = false;  // as it may
  bool faulty_ = false;  // the faults have begun
  absl::Time faults_end_ = absl::InfiniteFuture();
  uint64_t progress_ = 0;
  absl::Time moved_;
  absl::Time done_ = absl::InfiniteFuture();
};

}  // namespace slackline::world

// A whole cluster in virtual time and in one thread, from its start to the end of the job: real shard tables, a real
// controller and real sessions, on a network and a disk that fail. One seed decides everything.
//
// Phases:
//   start       The processes come up, a healthy job begins, and all shards get their first snapshots.
//   faults      The faults that the seed has drawn happen, for Options::faults_for; in one world of ten, from the very
//               beginning. A process that dies is started again a little later, as `slackline train` does it. A server
//               that is stopped for long is killed and replaced, or replaced elsewhere; with backups, some are left
//               alone.
//   calm        Nothing more goes wrong: all processes must find each other, and the job must be done.
//
// Each server has a backup in a share of the worlds (durability.mode replicated), which takes twice as many server
// processes. There, every push that was answered as applied is present at the end. The job may fail, with a message,
// only if a server and its backup were hit before the two were whole again (world_pairs.cc).
//
// Time limits:
//   kBegin      until training begins and all shards are on disk: nothing is wrong yet
//   kCalmAfter  from the end of the faults until nobody suffers from them: a death is noticed after 16 T (3.2 s), after
//               as much again if the scheduler itself had slept; then comes a restart (3 s), and a back-off (2 s)
//   kStuck      in the calm, until anything moves on: any push, pull, answer or lease. No wait is longer: a standstill
//               of quorum takes 16 T, a gate as long as the slowest worker's step, a join a few T
//   kFinish     in the calm, until the job is done: one worker alone takes less for what is left to do. With a quorum
//               (kFinishQuorum) each step may be a standstill of 16 T: shards that have discarded each other's workers
//               may do so again and again
//   kEnd        from there until all processes have ended: the farewell waits 5 s for a request for the status, and a
//               process that comes too late looks for the scheduler for timeouts.startup (60 s)
//   kFailover   until a backup has taken over from a server that dies or is stopped while nothing else is wrong: 6 T,
//               and the ticks at which the scheduler cannot save
// In the calm, a worker that awaits something of a server must also hear from it every 2 x 3 T (exchange.cc).
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
  // Returns whether training has begun and all shards are on disk; with backups, whether each pair has been whole.
  bool Ready();
  void CheckDeadlines();
  // Handles a failed job. A job that cannot come back from what has happened to it ends as failed, which is allowed
  // before its shards are on disk.
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
  // Returns the end of a fault of this length: no fault lasts longer than all of them.
  absl::Time Until(absl::Duration wait) const { return std::min(events_.Now() + wait, faults_end_); }
  Host* Anybody(Random& random);
  ServerProcess* AnyServer(Random& random);

  // --- world_pairs.cc: servers and their backups ---
  struct Pair {
    bool ever = false;   // the pair has been whole
    uint64_t blows = 0;  // since the pair was last whole
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
  // Counts that something goes wrong for this server or its backup.
  void Blow(ServerId server);
  void BlowAll();
  void BlowBetween(const Host* a, const Host* b);
  // Expects that the backup of this server, which dies or is stopped for long, takes over.
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
  // Ends the host's life and destroys the object.
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
  uint32_t drawn_ = 0;  // kinds of faults that are planned
  std::deque<std::string> trace_;
  // Caller of the calls that people and the supervisor make.
  Host supervisor_;

  std::unique_ptr<SchedulerProcess> scheduler_;
  std::string scheduler_address_ = "nowhere";
  std::vector<std::unique_ptr<ServerProcess>> servers_;  // including servers that were replaced and are stopped
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  uint32_t last_pid_ = 0;
  uint64_t last_address_ = 0;
  uint64_t servers_added_ = 0;
  std::set<std::string> drained_;  // names of servers that were told to leave

  const bool replicated_;
  std::map<ServerId, Pair> pairs_;
  std::optional<Failover> failover_;
  std::set<LifeId> compared_;

  const bool early_;     // faults begin before all is well
  bool failed_ = false;  // the job has failed, as it may
  bool faulty_ = false;  // the faults have begun
  absl::Time faults_end_ = absl::InfiniteFuture();
  uint64_t progress_ = 0;
  absl::Time moved_;
  absl::Time done_ = absl::InfiniteFuture();
};

}  // namespace slackline::world

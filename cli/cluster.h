// A job's processes on this machine: a scheduler, servers and workers, each with its part of the job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/crew.h"
#include "cli/run_folder.h"
#include "cli/run_processes.h"
#include "cli/scheduler_client.h"
#include "cli/signals.h"
#include "cli/silence.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Where the programs are.
struct Programs {
  std::filesystem::path scheduler;
  std::filesystem::path server;
  std::filesystem::path worker;

  // Those beside this program.
  //   kNotFound  names all that are missing
  static absl::StatusOr<Programs> BesideThisProgram();
  // The same of all programs of an installation: also of slackline-simulator, which no run needs.
  static absl::Status CheckAll();
};

// With their backups, where they have some.
uint32_t ServerProcesses(const job::Job& job);

// Which of a job's processes are this machine's.
struct Share {
  // All are: servers that `slackline servers add` asks for are started here, and the run is at its end when no worker
  // is left.
  bool whole = true;
  bool scheduler = true;
  std::vector<std::string> servers;
  std::vector<std::string> workers;
  // Which of worker.groups each of them trains; empty where the job has none.
  std::map<std::string, uint32_t> groups;
  // More arguments for each process of a role.
  std::vector<std::string> scheduler_arguments;
  std::vector<std::string> server_arguments;
  std::vector<std::string> worker_arguments;
  // In the place of the worker's program and its arguments: a script, which finds job, scheduler and name in its
  // environment. Empty: the worker's program.
  std::vector<std::string> script = {};
  // Called again and again while the scheduler's address is waited for; may be empty.
  std::function<void()> waiting = nullptr;
};
// What has a process listen on `host`, and say so, unless its job says what it listens on. In the place of
// network.interface: `host` is its address, or another was asked for.
std::vector<std::string> ListenAt(const std::string& host, const job::Network& network);
// Whether workers are to be bound to cores.
bool BindsCores(const job::Worker& worker);
// All of them.
Share WholeJob(const job::Job& job);

// Thread-safety: none.
// Ownership:     borrows `folder` and `signals` while it lives. No process outlives it.
class Cluster : public RunProcesses {
 public:
  // `protection`: of calls to the scheduler; null for plain text. `checkpoint`: the folder of the one that the run goes
  // on from; empty: it begins.
  Cluster(job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection, const RunFolder& folder,
          std::string checkpoint, Share share, SignalQueue& signals);

  // Starts the scheduler, waits for its address, then starts the others.
  absl::Status Start() override;

  bool has_scheduler() const override { return client_ != nullptr; }
  SchedulerClient& scheduler() override { return *client_; }
  // Always, where it is another machine's.
  bool scheduler_runs() override { return !share_.scheduler || crew_.Running(Role::kScheduler) > 0; }

  void Heard(bool scheduler_answered) override;

  // Starts workers, servers and the scheduler again as the job allows, those that die young after a while. Who hangs is
  // killed first: servers that the scheduler has given up; workers, too, if they do not come back by themselves; and
  // the scheduler where it falls silent.
  News Watch(const wire::GetStatusReply& status) override;

  // See Crew::Stop().
  std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) override { return crew_.Stop(deadlines); }

  // A server that was another machine's. Starts it.
  absl::Status TakeServer(const std::string& name);
  // It is another machine's now, and ends here at once.
  void GiveUpServer(const std::string& name);
  size_t Running() { return crew_.Running(); }

 private:
  // The first time anew, later where the one before has left off.
  absl::Status StartScheduler();
  // The scheduler is there now.
  void Follow(const std::string& address);
  absl::Status StartServer(const std::string& name);
  absl::Status StartWorker(const std::string& name);
  std::vector<std::string> ScriptCommand(const std::string& name) const;
  absl::StatusOr<std::string> WaitForAddress();
  void WorkerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void SchedulerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void ServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  // One that was to get shards, and had none.
  void IdleServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void StartAgainSoon(const Crew::End& end, const wire::GetStatusReply& status);
  // The processes of that name that `status` knows have ended.
  void NoteIncarnation(const std::string& name, wire::MemberRole role, const wire::GetStatusReply& status);
  // When one that has just ended is to be started again.
  absl::Time NextStart(const std::string& name);
  // One that was given up may still run (stopped, or cut off), and stands in the way of its successor.
  void KillGivenUpServers(const wire::GetStatusReply& status, News& news);
  // The same for workers. One that wakes up joins again: it is given time for that.
  void KillLostWorkers(const wire::GetStatusReply& status, News& news);
  void KillLostWorker(const wire::MemberStatus& worker, News& news);
  void KillSilentScheduler(const wire::GetStatusReply& status, News& news);
  // It may be started again, and would go on.
  bool SchedulerRecovers(const wire::GetStatusReply& status) const;
  void StartDue(News& news);
  bool IsMine(const std::string& server) const;
  // Those that `slackline servers add` has asked for.
  void StartAddedServers(const wire::GetStatusReply& status, News& news);

  const job::Job job_;
  const Programs programs_;
  const std::shared_ptr<const rpc::Protection> protection_;
  const RunFolder& folder_;
  const std::string checkpoint_;
  Share share_;
  const std::string place_;  // where the scheduler writes its address
  SignalQueue& signals_;
  Crew crew_;
  std::string address_;
  std::unique_ptr<SchedulerClient> client_;
  uint32_t worker_restarts_ = 0;
  uint32_t server_restarts_ = 0;
  std::map<std::string, uint32_t> idle_restarts_;  // of servers without shards, by name
  uint32_t servers_added_ = 0;
  uint32_t scheduler_restarts_ = 0;
  struct Restarts {
    Role role = Role::kServer;
    // In a row, of which none has lived long.
    uint32_t count = 0;
    absl::Time started = absl::InfinitePast();
    absl::Time due = absl::InfiniteFuture();
    // Up to this one, its processes are looked after: they have ended or were killed.
    uint64_t incarnation = 0;
    // Of a worker: the last one of its present process that was there; and since when it is dead.
    uint64_t there = 0;
    absl::Time dead_since = absl::InfiniteFuture();
  };
  std::map<std::string, Restarts> restarts_;
  std::string worker_death_;  // the last one: who, and its last line; empty: none has died
  Silence silence_;
};

}  // namespace slackline::cli

// Processes of a job on this machine: a scheduler, servers and workers, each with its part of the job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/signals.h"
#include "cli/base/silence.h"
#include "cli/run/crew.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_processes.h"
#include "cli/run/scheduler_client.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Paths of the programs that a run starts.
struct Programs {
  std::filesystem::path scheduler;
  std::filesystem::path server;
  std::filesystem::path worker;

  // Finds the programs that the job needs in the folder of this program. A job whose workers are scripts needs no
  // worker.
  //   kNotFound  names all that are missing
  static absl::StatusOr<Programs> BesideThisProgram(const job::Job& job);
  // Checks that the programs of the job are there, and slackline-simulator, which no run needs.
  static absl::Status CheckAll(const job::Job& job);
};

// Number of server processes of the job, including backups if there are any.
uint32_t ServerProcesses(const job::Job& job);

// Processes of a job that run on this machine.
struct Share {
  // True if this machine runs all processes of the job. Then servers that `slackline servers add` asks for start here,
  // and the run ends when no worker is left.
  bool whole = true;
  bool scheduler = true;
  std::vector<std::string> servers;
  std::vector<std::string> workers;
  // Index in worker.groups that each worker trains, by the worker's name. Empty if the job has no groups.
  std::map<std::string, uint32_t> groups;
  // Additional arguments for each process of a role.
  std::vector<std::string> scheduler_arguments;
  std::vector<std::string> server_arguments;
  std::vector<std::string> worker_arguments;
  // Command that replaces the worker's program and its arguments: a script, which finds job, scheduler and name in its
  // environment. Empty: the worker's program runs.
  std::vector<std::string> script = {};
  // Function that is called repeatedly while Start() waits for the scheduler's address. May be empty.
  std::function<void()> waiting = nullptr;
};
// Returns the arguments that make a process listen on `host` and advertise it, except for what the job sets itself
// (network.listen, network.advertise). The arguments clear network.interface, because `host` is the address of that
// interface, or another interface was asked for.
std::vector<std::string> ListenAt(const std::string& host, const job::Network& network);
// Returns true if workers are bound to cores.
bool BindsCores(const job::Worker& worker);
// Returns a share with all processes of the job.
Share WholeJob(const job::Job& job);

// Starts, watches and stops this machine's share of a job.
//
// Thread-safety: none.
// Ownership:     borrows `folder` and `signals` while it lives. No process outlives it.
class Cluster : public RunProcesses {
 public:
  // `protection` is for calls to the scheduler; null means plain text. `checkpoint` is the folder of the checkpoint
  // from which the run continues; empty for a new run.
  Cluster(job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection, const RunFolder& folder,
          std::string checkpoint, Share share, SignalQueue& signals);

  // Starts the scheduler, waits for its address, then starts the others.
  absl::Status Start() override;

  bool has_scheduler() const override { return client_ != nullptr; }
  SchedulerClient& scheduler() override { return *client_; }
  std::string SchedulerCrash() override { return crew_.Crash(security::Role::kScheduler); }
  // Always true if the scheduler runs on another machine.
  bool scheduler_runs() override;

  void Heard(bool scheduler_answered) override;

  // Restarts workers, servers and the scheduler as the job allows, with a delay for those that die young. Kills
  // processes that hang, before it restarts them: servers that the scheduler has given up; workers that the scheduler
  // has given up and that do not come back by themselves; and the scheduler if it falls silent. Once the job has ended,
  // only the scheduler is looked after: it still writes the summary and the last checkpoint.
  News Watch(const wire::GetStatusReply& status) override;

  // See Crew::Stop().
  std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) override { return crew_.Stop(deadlines); }

  // Starts a server that ran on another machine before.
  absl::Status TakeServer(const std::string& name);
  // Kills a server at once, because it belongs to another machine now.
  void GiveUpServer(const std::string& name);
  size_t Running() { return crew_.Running(); }

 private:
  // Starts a new scheduler the first time. Later calls start one that continues from its predecessor's saved state.
  absl::Status StartScheduler();
  // Connects to the scheduler at `address`, if it is a new address.
  void Follow(const std::string& address);
  absl::Status StartServer(const std::string& name);
  absl::Status StartWorker(const std::string& name);
  std::vector<std::string> ScriptCommand(const std::string& name) const;
  absl::StatusOr<std::string> WaitForAddress();
  void WorkerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  // Watches the scheduler alone, once the job has ended.
  News WatchEnded(const wire::GetStatusReply& status);
  // Reports the ends of workers to the scheduler, once it is known which job it has.
  void ReportWorkerEnds(const wire::GetStatusReply& status);
  void SchedulerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void ServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  // Handles the end of a server that was to get shards, and had none.
  void IdleServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void StartAgainSoon(const Crew::End& end, const wire::GetStatusReply& status);
  // Notes that all processes of this name that `status` lists have ended.
  void NoteIncarnation(const std::string& name, wire::MemberRole role, const wire::GetStatusReply& status);
  // Returns when to restart a process that has just ended.
  absl::Time NextStart(const std::string& name);
  // Kills servers that the scheduler has given up. Such a server may still run (stopped, or cut off), and stands in the
  // way of its successor.
  void KillGivenUpServers(const wire::GetStatusReply& status, News& news);
  // Kills workers that the scheduler has given up. A worker that wakes up joins again, so it gets time for that first.
  void KillLostWorkers(const wire::GetStatusReply& status, News& news);
  void KillLostWorker(const wire::MemberStatus& worker, News& news);
  void KillSilentScheduler(const wire::GetStatusReply& status, News& news);
  // Returns true if the scheduler may be restarted, and would continue the run.
  bool SchedulerRecovers(const wire::GetStatusReply& status) const;
  void StartDue(News& news);
  bool IsMine(const std::string& server) const;
  // Starts the servers that `slackline servers add` has asked for.
  void StartAddedServers(const wire::GetStatusReply& status, News& news);

  const job::Job job_;
  const Programs programs_;
  const std::shared_ptr<const rpc::Protection> protection_;
  const RunFolder& folder_;
  const std::string checkpoint_;
  Share share_;
  const std::string place_;  // file to which the scheduler writes its address
  SignalQueue& signals_;
  Crew crew_;
  std::string address_;
  std::unique_ptr<SchedulerClient> client_;
  uint32_t worker_restarts_ = 0;
  uint32_t server_restarts_ = 0;
  std::map<std::string, uint32_t> idle_restarts_;  // restarts of servers without shards, by name
  uint32_t servers_added_ = 0;
  uint32_t scheduler_restarts_ = 0;
  struct Restarts {
    security::Role role = security::Role::kServer;
    // Number of consecutive restarts after a short life.
    uint32_t count = 0;
    absl::Time started = absl::InfinitePast();
    absl::Time due = absl::InfiniteFuture();
    // Newest incarnation that needs no more attention: it and all earlier ones have ended or were killed.
    uint64_t incarnation = 0;
    // Workers only: last incarnation of the present process that was alive, and the time since which it is dead.
    uint64_t there = 0;
    absl::Time dead_since = absl::InfiniteFuture();
  };
  std::map<std::string, Restarts> restarts_;
  // End of a worker that the scheduler has not been told of.
  struct WorkerEnd {
    std::string name;
    std::string how;
    bool announced = false;
  };
  std::vector<WorkerEnd> worker_ends_;
  std::string worker_end_;    // name of the worker that ended last, and how; empty if none has ended
  bool worker_died_ = false;  // whether that worker died, so that its end cannot be that of the job
  SchedulerSilence silence_;
};

}  // namespace slackline::cli

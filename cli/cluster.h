// The whole job as processes on this machine: a scheduler, servers and workers, each with its part of the job.
#pragma once

#include <cstdint>
#include <filesystem>
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
#include "cli/scheduler_client.h"
#include "cli/signals.h"
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
};

// With their backups, where they have some.
uint32_t ServerProcesses(const job::Job& job);

// Thread-safety: none.
// Ownership:     borrows `folder` and `signals` while it lives. No process outlives it.
class Cluster {
 public:
  // `protection`: of calls to the scheduler; null for plain text. `checkpoint`: the folder of the one that the run goes
  // on from; empty: it begins.
  Cluster(job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection, const RunFolder& folder,
          std::string checkpoint, SignalQueue& signals);

  // Starts the scheduler, waits for its address, then starts the others.
  //   kDeadlineExceeded  the scheduler gave no address in time
  //   kAborted           it died; its last words are in the message
  //   kCancelled         a stop signal came
  absl::Status Start();

  // Once the scheduler has given its address, which it has when Start() was OK.
  bool has_scheduler() const { return client_ != nullptr; }
  SchedulerClient& scheduler() { return *client_; }
  bool scheduler_runs() { return crew_.Running(Role::kScheduler) > 0; }

  struct News {
    // Deaths and restarts, for people.
    std::vector<std::string> lines;
    // Why the run cannot go on, unless the job has ended meanwhile: empty while it can.
    std::string trouble;
    // The trouble may just be the end of the job that was seen early: nobody has failed.
    bool maybe_done = false;
  };
  // Looks after the processes: reports deaths to the scheduler, and starts workers and servers again as the job allows.
  // Servers that the scheduler has given up are killed first. `status` is the last that the scheduler said, empty
  // before.
  News Watch(const wire::GetStatusReply& status);

  // Ends all; see Crew::Stop().
  std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) { return crew_.Stop(deadlines); }

 private:
  // The first time anew, later where the one before has left off.
  absl::Status StartScheduler();
  // The scheduler is there now.
  void Follow(const std::string& address);
  absl::Status StartServer(const std::string& name);
  absl::Status StartWorker(const std::string& name);
  absl::StatusOr<std::string> WaitForAddress();
  void WorkerEnded(const Crew::End& end, uint64_t job, News& news);
  void SchedulerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void ServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  // One that was to get shards, and had none.
  void IdleServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news);
  void StartAgainSoon(const Crew::End& end, const wire::GetStatusReply& status);
  // One that was given up may still run (stopped, or cut off), and stands in the way of its successor.
  void KillGivenUpServers(const wire::GetStatusReply& status, News& news);
  void StartDueServers(News& news);
  // Those that `slackline servers add` has asked for.
  void StartAddedServers(const wire::GetStatusReply& status, News& news);

  const job::Job job_;
  const Programs programs_;
  const std::shared_ptr<const rpc::Protection> protection_;
  const RunFolder& folder_;
  const std::string checkpoint_;
  const std::string place_;  // where the scheduler writes its address
  SignalQueue& signals_;
  Crew crew_;
  std::string address_;
  std::unique_ptr<SchedulerClient> client_;
  uint32_t worker_restarts_ = 0;
  uint32_t server_restarts_ = 0;
  uint32_t servers_added_ = 0;
  uint32_t scheduler_restarts_ = 0;
  struct Restarts {
    uint32_t count = 0;
    absl::Time due = absl::InfiniteFuture();
    // Up to this one, its processes are looked after: they have ended or were killed.
    uint64_t incarnation = 0;
  };
  std::map<std::string, Restarts> servers_;
  bool worker_died_ = false;
};

}  // namespace slackline::cli

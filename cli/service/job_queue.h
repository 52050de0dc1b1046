// Queue of the service: decides which job begins next, and what an order does to a job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/service/queue_limits.h"
#include "job_service.pb.h"

namespace slackline::cli {

// How the processes of a job ended, as the run folder or the system says.
struct JobEnd {
  // SERVICE_JOB_DONE, _FAILED or _STOPPED; SERVICE_JOB_UNKNOWN if they are gone without a word.
  wire::ServiceJobState state = wire::SERVICE_JOB_UNKNOWN;
  std::string reason;
  // True if the job has made a checkpoint since it was begun.
  bool advanced = false;
};

// The jobs of the service. Times are seconds since 1970.
//
// Jobs of a higher priority begin first. Among equals begins the one whose owner runs the fewest jobs; then the one
// that was submitted first. The first job that lacks GPUs or memory gets what becomes free of both: until it has begun,
// jobs of its priority and lower ones begin if they leave it what it asks for, and it begins before them. A job that a
// limit of its owner keeps back has no such right.
//
// A job on SLURM begins at once, and no limit counts it: SLURM has a queue of its own. "Running" means that SLURM has
// it, and that a process follows it there. If that process is lost, another one follows the job.
//
// Thread-safety: none.
class JobQueue {
 public:
  // Largest number of jobs that the queue keeps, ended ones included.
  static constexpr size_t kJobsMax = 100000;
  // Most times in a row that a job begins again after its processes were gone without a word. A job that has made a
  // checkpoint since it was begun counts from the beginning.
  static constexpr uint32_t kLossesMax = 3;
  static constexpr int32_t kPriorityMax = 1000;

  explicit JobQueue(QueueLimits limits) : limits_(std::move(limits)) {}

  // Takes in a job that an earlier host has kept, or puts a job back into the state that it had before.
  void Restore(const wire::ServiceJob& job);

  // Gives new jobs numbers above `id`.
  void CountFrom(uint64_t id) { last_ = std::max(last_, id); }

  // Adds a job, which waits, and returns it. Its number is higher than those of all jobs before.
  //   kInvalidArgument    the name or the priority is not allowed, there is no job file, or the job needs more than one
  //                       job of its owner can get
  //   kResourceExhausted  there are kJobsMax jobs
  absl::StatusOr<wire::ServiceJob> Submit(const wire::SubmitRequest& request, double now_s);
  // Changes a job as ordered, and returns it. A running job that is to end keeps the order until End().
  //   kNotFound            there is no such job
  //   kFailedPrecondition  its state does not allow the order, or it needs more than a job can get now
  //   kInvalidArgument     the order is unknown, or settings come with an order that takes none
  absl::StatusOr<wire::ServiceJob> Order(const wire::OrderJobRequest& request, double now_s);
  // Forgets an ended job, for which JOB_ORDER_REMOVE was accepted, or that Surplus() has named.
  void Remove(uint64_t id);
  // Returns the ended jobs beyond those that are kept, oldest first. Jobs that ended at `before_s` or later stay.
  std::vector<uint64_t> Surplus(double before_s) const;

  // Returns the job that may begin now; nullopt if there is none.
  std::optional<uint64_t> Next();
  // Returns what is wrong if a running job may use GPUs that other jobs can get: an earlier host had other GPUs.
  std::string OtherGpus(uint64_t id) const;
  // Returns why a job waits.
  // Requires: the job waits.
  std::string WhyItWaits(uint64_t id) const;
  // Notes that a waiting job has begun, and returns it. It gets its GPUs, as far as there are free ones. `checkpoint`:
  // its newest one; `events`: as begun_events.
  const wire::ServiceJob& Begin(uint64_t id, double now_s, uint64_t checkpoint = 0, uint64_t events = 0);
  // Notes that the order of a running job was signalled, and returns the job.
  const wire::ServiceJob& Tell(uint64_t id);
  // Notes that the processes of a running job are gone, and returns the job. It waits again if they were gone without a
  // word, and no order was to end it.
  const wire::ServiceJob& End(uint64_t id, const JobEnd& end, double now_s);
  // Notes the figures of a job.
  void SetFigures(uint64_t id, const wire::ServiceJobFigures& figures);

  // Returns the job; null if there is none.
  const wire::ServiceJob* Find(uint64_t id) const;
  // All jobs by number.
  const std::map<uint64_t, wire::ServiceJob>& jobs() const { return jobs_; }
  // Returns the memory, GPUs and places that running jobs have together.
  const QueueShare& used() const { return used_; }

 private:
  absl::Status EndByOrder(wire::ServiceJob& job, const wire::OrderJobRequest& request, double now_s);
  absl::Status Resume(wire::ServiceJob& job, const wire::OrderJobRequest& request);
  void SetState(wire::ServiceJob& job, wire::ServiceJobState state);
  void EndAs(wire::ServiceJob& job, wire::ServiceJobState state, double now_s);
  // Removes the job from the lists below.
  void Unlist(const wire::ServiceJob& job);
  std::vector<std::string> FreeGpus() const;
  // Returns the memory, GPUs and places that no running job has.
  QueueShare Free() const;
  // Returns why no job of these needs could ever begin; empty if one could.
  std::string TooMuch(const wire::JobNeeds& needs) const;
  // Returns which limit of its owner the job would break beside those that run; empty: none.
  std::string OwnerIsAtLimit(const wire::ServiceJob& job) const;
  // Returns whether neither of the two keeps the job back.
  bool IsAllowed(const wire::ServiceJob& job) const;
  // Returns Free() without the memory and GPUs that `kept_for` asks for; null: keeps nothing.
  QueueShare FreeBeside(const wire::ServiceJob* kept_for) const;

  // Owner, GPUs and bytes of memory of a job. Jobs that agree in them are kept back by the same limits.
  using Asking = std::tuple<std::string, uint32_t, uint64_t>;
  static Asking AskingAs(const wire::ServiceJob& job) {
    return {job.owner(), job.needs().gpus(), job.needs().memory_bytes()};
  }

  const QueueLimits limits_;
  uint64_t last_ = 0;  // highest number of a job
  std::map<uint64_t, wire::ServiceJob> jobs_;
  // Numbers of waiting jobs, by negative priority.
  std::map<int32_t, std::map<Asking, std::set<uint64_t>>> waiting_;
  std::set<uint64_t> waiting_for_slurm_;  // numbers of jobs that SLURM is to get, or whose follower was lost
  uint64_t kept_for_ = 0;                 // the job that gets GPUs and memory as they become free; 0: there is none
  std::set<uint64_t> running_;
  std::set<std::pair<double, uint64_t>> ended_;  // when, number
  QueueShare used_;
  std::map<std::string, QueueShare> used_by_;  // by owner
  std::set<std::string> taken_gpus_;
};

// Returns the state's name: "queued", "running", "done", "failed", "stopped", "cancelled"; "stopping" and "cancelling"
// for a running job with an order.
std::string StateName(const wire::ServiceJob& job);
// Returns the error for a job that the service does not have.
absl::Status NoSuchJob(uint64_t id);
// Returns whether the job is neither queued nor running.
bool HasEnded(const wire::ServiceJob& job);
// Returns whether the job runs in an allocation of SLURM.
bool IsOnSlurm(const wire::ServiceJob& job);
// Returns whether SLURM may have the job although it waits: the process that followed it was lost.
bool LostOnSlurm(const wire::ServiceJob& job);

}  // namespace slackline::cli

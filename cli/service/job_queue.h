// Queue of the service: decides which job begins next, and what an order does to a job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
// Thread-safety: none.
class JobQueue {
 public:
  // Most jobs that are kept. Ended ones are removed by an order only.
  static constexpr size_t kJobsMax = 100000;
  // Most times in a row that a job begins again after its processes were gone without a word. A job that has made a
  // checkpoint since it was begun counts from the beginning.
  static constexpr uint32_t kLossesMax = 3;
  static constexpr int32_t kPriorityMax = 1000;

  // `running_max`: largest number of jobs that run at the same time.
  explicit JobQueue(size_t running_max) : running_max_(running_max) {}

  // Takes in a job that an earlier host has kept, or puts a job back into the state that it had before.
  void Restore(const wire::ServiceJob& job);

  // Gives new jobs numbers above `id`.
  void CountFrom(uint64_t id) { last_ = std::max(last_, id); }

  // Adds a job, which waits, and returns it. Its number is higher than those of all jobs before.
  //   kInvalidArgument    the name or the priority is not allowed, or there is no job file
  //   kResourceExhausted  there are kJobsMax jobs
  absl::StatusOr<wire::ServiceJob> Submit(const wire::SubmitRequest& request, double now_s);
  // Changes a job as ordered, and returns it. A running job that is to end keeps the order until End().
  //   kNotFound            there is no such job
  //   kFailedPrecondition  its state does not allow the order; the message names the state
  //   kInvalidArgument     the order is unknown, or settings come with an order that takes none
  absl::StatusOr<wire::ServiceJob> Order(const wire::OrderJobRequest& request, double now_s);
  // Forgets an ended job, for which JOB_ORDER_REMOVE was accepted.
  void Remove(uint64_t id);

  // Returns the job that may begin now; nullopt if there is none.
  std::optional<uint64_t> Next() const;
  // Notes that a waiting job has begun, and returns it. `checkpoint`: its newest one; `events`: as begun_events.
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
  const std::set<uint64_t>& running() const { return running_; }

 private:
  absl::Status EndByOrder(wire::ServiceJob& job, const wire::OrderJobRequest& request, double now_s);
  absl::Status Resume(wire::ServiceJob& job, const wire::OrderJobRequest& request);
  void SetState(wire::ServiceJob& job, wire::ServiceJobState state);
  // Removes the job from the two sets below.
  void Unlist(const wire::ServiceJob& job);

  const size_t running_max_;
  uint64_t last_ = 0;  // highest number of a job
  std::map<uint64_t, wire::ServiceJob> jobs_;
  // Jobs that wait, in the order in which they begin: negative priority, number.
  std::set<std::pair<int32_t, uint64_t>> waiting_;
  std::set<uint64_t> running_;
};

// Returns the state's name: "queued", "running", "done", "failed", "stopped", "cancelled"; "stopping" and "cancelling"
// for a running job with an order.
std::string StateName(const wire::ServiceJob& job);
// Returns the error for a job that the service does not have.
absl::Status NoSuchJob(uint64_t id);
// Returns whether the job is neither queued nor running.
bool HasEnded(const wire::ServiceJob& job);

}  // namespace slackline::cli

// The host of the service: keeps the jobs, starts the processes of those that may begin, and watches them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/service/job_book.h"
#include "cli/service/job_process.h"
#include "cli/service/job_queue.h"
#include "job_service.pb.h"

namespace slackline::cli {

// The folder of the service:
//
//   book/            jobs, in a database
//   jobs/ID/         one job: job.yaml, log (its output), process (its process id and more), run/ (its run folder)
//
// Each job is a `slackline train`, `launch` or `resume` in a session of its own; for a job on SLURM, a `slackline slurm
// submit --wait`, which follows it there. Jobs go on when the host ends, however that happens; the next host of the
// folder finds them.
//
// Thread-safety: safe; Turn() is for one thread, and RemoveSurplus() for one.
class JobHost {
 public:
  struct Options {
    std::filesystem::path folder;
    QueueLimits limits = {};
    // Shortest time for which an ended job is kept, however many there are: somebody may wait for its end.
    absl::Duration ended_min = absl::Minutes(1);
    // Path of the program `slackline`.
    std::filesystem::path program;
  };
  // Opens the folder, which is created if there is none, and finds its jobs.
  //   kAborted        another host has the folder open
  //   kAlreadyExists  the folder has other files
  //   others          as Database::Open(); kUnavailable: the folder cannot be made
  static absl::StatusOr<std::unique_ptr<JobHost>> Open(Options options);

  // Errors as for JobQueue and JobBook. A change that cannot be saved is not made.
  absl::StatusOr<wire::SubmitReply> Submit(const wire::SubmitRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<wire::OrderJobReply> Order(const wire::OrderJobRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  //   kNotFound  there is no job of the number that was asked for
  absl::StatusOr<wire::ListJobsReply> List(const wire::ListJobsRequest& request) const ABSL_LOCKS_EXCLUDED(mutex_);
  //   kNotFound  there is no such job, or no such log yet
  absl::StatusOr<wire::ReadJobLogReply> ReadLog(const wire::ReadJobLogRequest& request) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Looks after all jobs: notes which have ended, carries out orders, and begins jobs. Call it a few times a second.
  void Turn() ABSL_LOCKS_EXCLUDED(mutex_);

  // Removes ended jobs beyond those that are kept, and deletes their folders, which may take minutes.
  void RemoveSurplus() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the number of jobs in each state, by StateName().
  std::map<std::string, size_t> Count() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the memory, GPUs and places that running jobs have together.
  QueueShare Used() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A job that runs here.
  struct Running {
    JobProcess process;
    // Stop signals that were sent: the first saves and ends the run, the second ends it at once.
    int told = 0;
    // Earliest time of the next signal.
    absl::Time next = absl::InfinitePast();
  };

  JobHost(Options options, std::unique_ptr<JobBook> book)
      : options_(std::move(options)), book_(std::move(book)), queue_(options_.limits) {}

  std::filesystem::path FolderOf(uint64_t id) const { return options_.folder / "jobs" / std::to_string(id); }
  absl::Status FindJobs() ABSL_LOCKS_EXCLUDED(mutex_);
  // Saves a job that was changed; if that fails, puts it back to what it was `before`.
  absl::Status SaveOr(const wire::ServiceJob& job, const wire::ServiceJob& before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Saves a job whose change has happened whatever the disk says.
  void Keep(const wire::ServiceJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks what depends on the files of a job before an order is accepted.
  absl::Status CheckOrder(const wire::ServiceJob& job, const wire::OrderJobRequest& request) const;
  // Notes that the processes of a job are gone. `process`: as far as it is known.
  void Ended(uint64_t id, const std::optional<JobProcess>& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of the job's newest whole checkpoint; 0 if there is none.
  //   errors of ReadJobFile(): the run cannot be read, and may have one
  absl::StatusOr<uint64_t> NewestCheckpoint(uint64_t id) const;
  // Takes an ended job out of the book. Returns its folder; the caller deletes it after it has let go of the lock.
  absl::StatusOr<std::filesystem::path> Forget(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeEnds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellOrders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<JobProcess> StartJob(const wire::ServiceJob& job) const;
  // Returns the command that begins the job, or continues it where it has a checkpoint. For a job that SLURM has, the
  // command that follows it there.
  absl::StatusOr<std::vector<std::string>> CommandFor(const wire::ServiceJob& job) const;
  // Puts the run folder of an earlier attempt, if there is one, beside the one of this attempt.
  absl::Status PutRunAside(const wire::ServiceJob& job) const;
  // Returns how a job has ended. `process`: as far as it is known.
  JobEnd EndOf(const wire::ServiceJob& job, const std::optional<JobProcess>& process) const;
  // Returns why a job waits, and how its processes were lost before, if they were.
  std::string WhyItWaits(const wire::ServiceJob& job) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  const std::unique_ptr<JobBook> book_ ABSL_PT_GUARDED_BY(mutex_);
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::cli

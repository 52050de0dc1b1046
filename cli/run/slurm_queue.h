// State of a run's SLURM job, from SLURM's queue.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli {

// A job as squeue shows it.
struct QueuedJob {
  std::string number;
  std::string state;   // PENDING, RUNNING ...
  std::string reason;  // reason for waiting: Priority, Resources ...
  std::string start;   // expected start; empty if it is not known
  std::string nodes;   // nodes on which the job runs

  bool pending() const { return state == "PENDING"; }
  // True if the job has ended, and SLURM may still be tidying its nodes.
  bool ends() const { return state == "COMPLETING" || over(); }
  // True if the job has ended: COMPLETED, FAILED, CANCELLED, TIMEOUT ...
  bool over() const;
  // Example: "SLURM job 12 is PENDING (Resources), expected to start at 2025-01-31T12:00:00"
  std::string Describe() const;
};

// Records that the run is in SLURM's queue under this number, which is the output of sbatch --parsable.
//   kUnavailable  the file system refuses
absl::Status NoteSlurmJob(const std::filesystem::path& run, const std::string& number);
// Forgets the number, before the run is submitted anew.
void ForgetSlurmJob(const std::filesystem::path& run);
// Returns the number under which the run was last submitted; nullopt if it was not, or the number was not noted.
std::optional<std::string> SlurmJobOf(const std::filesystem::path& run);

// Path of the batch script of the run, by which SLURM's queue tells whose job one is.
std::filesystem::path BatchScriptOf(const std::filesystem::path& run);
// Returns the number of this user's job in the queue that runs the batch script of the run; nullopt if there is none.
//   kUnavailable  as AskSlurm()
absl::StatusOr<std::optional<std::string>> FindByScript(const std::filesystem::path& run);
// Checks that somebody can follow a job that is submitted with these options for sbatch.
//   kInvalidArgument  an option makes several jobs or none, or changes what the job runs or where its output goes
absl::Status CheckFollowed(const std::vector<std::string>& options);

// Asks SLURM for a job. It knows jobs that have ended for some minutes (MinJobAge).
//   kNotFound     SLURM does not know the job, or not any more
//   kUnavailable  squeue is missing, fails, or does not answer within 10 s
absl::StatusOr<QueuedJob> AskSlurm(const std::string& number);

// Returns the job as which the run was last submitted, if it is still in the queue; for an array, the first task in the
// queue. Returns nullopt if the run was not submitted, or squeue is missing or does not answer.
std::optional<QueuedJob> FindInQueue(const std::filesystem::path& run);

// Parses a line of squeue --format=%i|%T|%r|%S|%N.
std::optional<QueuedJob> ParseQueued(const std::string& line);

}  // namespace slackline::cli

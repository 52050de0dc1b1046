// What SLURM's queue says of the job that a run folder belongs to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace slackline::cli {

// As squeue has it.
struct QueuedJob {
  std::string number;
  std::string state;   // PENDING, RUNNING ...
  std::string reason;  // why it waits: Priority, Resources ...
  std::string start;   // when it is expected to start; empty where nobody knows
  std::string nodes;   // that it runs on

  bool pending() const { return state == "PENDING"; }
  // It has ended, and its nodes are being tidied.
  bool ends() const { return state == "COMPLETING" || state == "COMPLETED"; }
  // "SLURM job 12 is PENDING (Resources), expected to start at 2025-01-31T12:00:00"
  std::string Describe() const;
};

// Writes down that SLURM has the run in its queue under this number, as sbatch --parsable has said it.
//   kUnavailable  the file system refuses
absl::Status NoteSlurmJob(const std::filesystem::path& run, const std::string& number);

// The job that a run was last submitted as, if the queue still has it; of an array, its first task that is there.
// nullopt where it was not submitted, or squeue is not there or does not answer.
std::optional<QueuedJob> FindInQueue(const std::filesystem::path& run);

// A line of squeue --format=%i|%T|%r|%S|%N.
std::optional<QueuedJob> ParseQueued(const std::string& line);

}  // namespace slackline::cli

// Calls of SLURM's own programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/process.h"

namespace slackline::cli::slurm {

// Runs a command found in PATH, and returns its output. The output goes to `log`, which is replaced.
//   kUnavailable       the command has failed; its last words
//   kDeadlineExceeded  the command was killed, because it took longer than `timeout`
absl::StatusOr<std::string> Ask(const std::vector<std::string>& command, const std::filesystem::path& log,
                                absl::Duration timeout);

// Parses a time such as "1-02:03:04", "02:03:04" or "03:04". If there are several lines, for the components of a job,
// returns the smallest. Returns nullopt for UNLIMITED and whatever else SLURM prints for a job without a limit.
std::optional<absl::Duration> ParseTimeLeft(const std::string& text);

// Time at which a job's time limit ends. Asks SLURM repeatedly, since the limit may change.
//
// Thread-safety: none.
class TimeLimit {
 public:
  // `log` takes the output of the questions.
  TimeLimit(std::string job, std::filesystem::path log) : job_(std::move(job)), log_(std::move(log)) {}

  // Returns the end of the time limit from the last answer; InfiniteFuture() if there is no limit, or before the first
  // answer. Does not wait.
  absl::Time End();

 private:
  const std::string job_;
  const std::filesystem::path log_;
  std::optional<Process> question_;
  absl::Time asked_;
  absl::Time due_ = absl::InfinitePast();
  absl::Time end_ = absl::InfiniteFuture();
};

// Returns how often the job was requeued; nullopt if scontrol does not say so.
std::optional<uint32_t> ParseRestarts(const std::string& text);

// Puts the job back into the queue, from which it starts again with the same number.
absl::Status Requeue(const std::string& job, const std::filesystem::path& log);

// Same as Requeue(), but only if the job still runs and was requeued exactly `restarts` times so far.
//   kFailedPrecondition  the job was requeued since, or has ended
absl::Status RequeueOnce(const std::string& job, uint32_t restarts, const std::filesystem::path& log);

}  // namespace slackline::cli::slurm

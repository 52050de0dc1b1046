// What is asked of SLURM by its own programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/process.h"

namespace slackline::cli::slurm {

// Runs a command found in PATH. `log` takes what it says, and is replaced. Returns what it has said.
//   kUnavailable       it has failed; its last words
//   kDeadlineExceeded  it was killed, because it took longer than `timeout`
absl::StatusOr<std::string> Ask(const std::vector<std::string>& command, const std::filesystem::path& log,
                                absl::Duration timeout);

// "1-02:03:04", "02:03:04", "03:04"; of several lines, for the components of a job, the smallest; nullopt for UNLIMITED
// and whatever else SLURM says of a job without a limit.
std::optional<absl::Duration> ParseTimeLeft(const std::string& text);

// When the time of a job will be over, asked again and again, since the limit may be changed.
//
// Thread-safety: none.
class TimeLimit {
 public:
  // `log`: of the questions.
  TimeLimit(std::string job, std::filesystem::path log) : job_(std::move(job)), log_(std::move(log)) {}

  // As last heard; InfiniteFuture() where there is no limit, or before the first answer. Does not wait.
  absl::Time End();

 private:
  const std::string job_;
  const std::filesystem::path log_;
  std::optional<Process> question_;
  absl::Time asked_;
  absl::Time due_ = absl::InfinitePast();
  absl::Time end_ = absl::InfiniteFuture();
};

// How often the job was requeued; nullopt where scontrol does not say so.
std::optional<uint32_t> ParseRestarts(const std::string& text);

// Puts the job back into the queue, from which it starts again with the same number.
absl::Status Requeue(const std::string& job, const std::filesystem::path& log);

// The same, if that was not done since the job was requeued for the `restarts`th time.
//   kFailedPrecondition  it was
absl::Status RequeueOnce(const std::string& job, uint32_t restarts, const std::filesystem::path& log);

}  // namespace slackline::cli::slurm

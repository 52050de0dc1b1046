// End of a run as its folder records it, for when no scheduler answers: how the run ended, or that no process looks
// after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "status.pb.h"

namespace slackline::cli {

// State, besides those that a scheduler reports: the `slackline` that looked after the run is gone, and no end is
// recorded.
inline constexpr char kLost[] = "lost";
// State: the scheduler does not answer, and the run is not over.
inline constexpr char kAway[] = "away";
// State: the run is in SLURM's queue, and SLURM has not started it yet, or not again.
inline constexpr char kPending[] = "pending";

// Reads the state of a run from its folder. The status has no members. Its field `go_on` is the command
// that continues the run. `ask_slurm`: whether to ask SLURM, which may take 10 s, for a run that was submitted.
//   kNotFound  no run folder
absl::StatusOr<wire::JobStatus> ReadEnd(const std::filesystem::path& run, bool ask_slurm = true);

// Figures of a run, as far as its files tell them.
struct RunFigures {
  // consistency.mode; empty if no file tells it.
  std::string mode;
  std::optional<uint32_t> workers;
  std::optional<uint32_t> servers;
  std::optional<uint32_t> epochs_done;
  std::optional<uint32_t> epochs;
  // Accuracy, or mAP, as a share. Until the run has ended, one of at most 600 evaluations.
  std::optional<double> best_test_accuracy;
};

// Reads the figures from the job, epochs.csv and, if it tells of this end, summary.json. `end` is that of ReadEnd().
RunFigures ReadFigures(const std::filesystem::path& run, const wire::JobStatus& end);

// Adds to the run's events.log how the run has ended, unless the scheduler has recorded it. `state` is "done", "failed"
// or "stopped". Requires: the scheduler has ended.
//   kResourceExhausted, kUnavailable  it cannot be written
absl::Status RecordEnd(const std::filesystem::path& run, const std::string& state, const std::string& reason);

// Renders the state for people, with the last events.
std::string RenderEnd(const wire::JobStatus& status);

// Explains why an order to a run failed. If the run of the folder `target` is over, says so, and how to continue it;
// else returns `failed`.
absl::Status OrTheEnd(const std::string& target, const absl::Status& failed);

// Exit code of `slackline status` for a state: kExitDone for "starting", "training", "done" and kPending, else
// kExitFailed.
int ExitCodeOf(const std::string& state);

}  // namespace slackline::cli

// What the folder of a run says of it where no scheduler answers: how it ended, or that nobody looks after it.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "status.pb.h"

namespace slackline::cli {

// Besides the states that a scheduler says. Its processes are gone, and it has come to no end.
inline constexpr char kLost[] = "lost";
// Its scheduler does not answer, and the run is not over.
inline constexpr char kAway[] = "away";
// SLURM has it in its queue, and has not started it (again) yet.
inline constexpr char kPending[] = "pending";

// Of members nothing is known. go_on is the command that goes on with the run.
//   kNotFound  no run folder
absl::StatusOr<wire::JobStatus> ReadEnd(const std::filesystem::path& run);

// Adds to its events.log how the run has ended, unless the scheduler has said so. `state`: "done", "failed" or
// "stopped". Requires: the scheduler has ended.
//   kResourceExhausted, kUnavailable  it cannot be written
absl::Status RecordEnd(const std::filesystem::path& run, const std::string& state, const std::string& reason);

// The same for people, with the last events.
std::string RenderEnd(const wire::JobStatus& status);

// Why an order to a run came to nothing: where nobody answers and the run of the folder `target` is over, that, and how
// to go on; else `failed`.
absl::Status OrTheEnd(const std::string& target, const absl::Status& failed);

// Exit code of `slackline status` for a state: done where the run is done or goes on, else failed.
int ExitCodeOf(const std::string& state);

}  // namespace slackline::cli

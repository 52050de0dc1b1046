// `slackline checkpoint`, `slackline checkpoints`, `slackline export`; and what `slackline resume` goes on from.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "cli/status.h"
#include "common/checkpoint/folder.h"

namespace slackline::cli {

// Each prints, and returns the exit code.

// Has a checkpoint of the run made, and waits for it.
int MakeCheckpoint(const StatusOptions& run);

// Lists those of a run folder, or of a folder of checkpoints. `verify`: reads all bytes of each.
int ListCheckpoints(const std::string& target, bool verify);

// Writes the weights of a checkpoint, or of a run's newest one, as safetensors with the model's own names.
// `which`: kExportLast, kExportAveraged, or empty for what the run would leave: the average, where the job keeps one.
// `quiet`: prints only what is wrong.
inline constexpr char kExportLast[] = "last", kExportAveraged[] = "averaged";
int ExportCheckpoint(const std::string& target, const std::string& name, const std::string& file,
                     const std::string& which = "", bool quiet = false);

// Where the checkpoints of the run are, as its job.yaml says.
//   kNotFound  no run folder
absl::StatusOr<std::filesystem::path> CheckpointsOfRun(const std::filesystem::path& run);

// The checkpoint of that name, number or path, or, where it is empty, the newest one that is whole.
//   kNotFound   there is none
//   kDataLoss   the one that was named is broken
absl::StatusOr<checkpoint::Choice> ChooseCheckpoint(const std::filesystem::path& folder, const std::string& name);

}  // namespace slackline::cli

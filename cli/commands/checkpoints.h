// `slackline checkpoint`, `slackline checkpoints` and `slackline export`; also chooses the checkpoint for `slackline
// resume`.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "common/checkpoint/folder.h"

namespace slackline::cli {

AddedCommand AddCheckpoint(CLI::App& app, const char* program);
AddedCommand AddCheckpoints(CLI::App& app, const char* program);
AddedCommand AddExport(CLI::App& app, const char* program);

// Writes the weights of a checkpoint, or of a run's newest one, as safetensors with the model's own names.
// `which`: kExportLast, kExportAveraged, or empty for what the run would leave: the average if the job keeps one, else
// the last weights.
// `quiet`: prints only errors. Returns the exit code.
inline constexpr char kExportLast[] = "last", kExportAveraged[] = "averaged";
int ExportCheckpoint(const std::string& target, const std::string& name, const std::string& file,
                     const std::string& which = "", bool quiet = false);

// Returns the folder of the run's checkpoints, as its job.yaml names it.
//   kNotFound  no run folder
absl::StatusOr<std::filesystem::path> CheckpointsOfRun(const std::filesystem::path& run);

// Chooses the checkpoint with this name, number or path. "best": the best one that was made for an evaluation. Empty:
// the newest one that is whole.
//   kNotFound   there is none
//   kDataLoss   the named checkpoint is broken
absl::StatusOr<checkpoint::Choice> ChooseCheckpoint(const std::filesystem::path& folder, const std::string& name);

}  // namespace slackline::cli

// `slackline runs`: the runs of a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/run/run_end.h"

namespace slackline::cli {

// A run as its files tell it, without asking its scheduler.
struct ListedRun {
  std::filesystem::path folder;
  // kRunning, or a state of ReadEnd(). Empty if the folder cannot be read.
  std::string state;
  RunFigures figures;
  // Name of the figure in best_test_accuracy, as in summary.json; empty if it is not known.
  std::string test_metric;
  // Metric of the job; without a name if it is not known.
  wire::JobMetric metric;
  // Time when the run was started or, if it was resumed, resumed last.
  std::optional<absl::Time> begun;
  // Bytes of all files in the folder. A file with several hard links counts once.
  std::optional<uint64_t> bytes;
};

// State of a run that has not ended, and that a `slackline` or SLURM looks after.
inline constexpr char kRunning[] = "running";

// Returns the runs that are folders in `folder`, newest first. Folders that hold no run are left out.
//   kNotFound     there is no such folder
//   kUnavailable  the folder cannot be read
absl::StatusOr<std::vector<ListedRun>> FindRuns(const std::filesystem::path& folder);

// Renders a table of at most 100 columns. Long names of runs lose their middle.
std::string RenderRuns(const std::vector<ListedRun>& runs, absl::Time now);
// Renders a JSON array. Figures that are not known are null.
std::string RunsJson(const std::vector<ListedRun>& runs, absl::Time now);

// Prints the table, or JSON. Returns the exit code.
int ListRuns(const std::string& folder, bool json);

AddedCommand AddRuns(CLI::App& app, const char* program);

}  // namespace slackline::cli

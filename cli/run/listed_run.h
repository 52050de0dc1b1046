// A run as its files tell it, without asking its scheduler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/run/run_end.h"
#include "job_service.pb.h"

namespace slackline::cli {

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

// Returns the run in `folder`; nullopt if there is none. A folder that nobody may look into counts as a run.
// `ask_slurm`: as for ReadEnd().
std::optional<ListedRun> LookAt(const std::filesystem::path& folder, bool ask_slurm = true);
// Returns the figures as messages have them.
wire::ServiceJobFigures FiguresOf(const ListedRun& run);

// Renders the figures as cells of a table: mode, workers, servers, epochs, best value of the metric, such as "91.70 %"
// or "loss 1.52". "-" stands for what is not known.
std::vector<std::string> FigureCells(const wire::ServiceJobFigures& figures);
// Examples: "12 s", "59 min", "47 h", "12 d".
std::string RenderAge(double seconds);

}  // namespace slackline::cli

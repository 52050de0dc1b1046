// `slackline runs`: the runs of a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/run/listed_run.h"

namespace slackline::cli {

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

// `slackline experiment`, `compare`, `plan`, `trace` and `track`: each hands over to the Python package of its name.
#pragma once

#include <string>
#include <vector>

namespace slackline::cli {

struct ExperimentOptions {
  // Python interpreter: a path or a name on PATH. Empty: the one of the environment `venv` beside the package, if that
  // exists, else python3.
  std::string python;
  // Arguments for the package: its file and its options.
  std::vector<std::string> arguments;
};

// Replaces this process with the Python program; returns only on failure, with the exit code. The package lies in
// ../share/slackline/python, relative to the folder of this program. A build folder has links there.
int Experiment(const ExperimentOptions& options);
int Compare(const ExperimentOptions& options);
int Track(const ExperimentOptions& options);
int Plan(const ExperimentOptions& options);
int TraceFiles(const ExperimentOptions& options);

}  // namespace slackline::cli

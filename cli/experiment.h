// `slackline experiment`, `slackline plan` and `slackline trace`: hand over to the Python packages of these names.
#pragma once

#include <string>
#include <vector>

namespace slackline::cli {

struct ExperimentOptions {
  // Interpreter, as a path or a name on PATH; empty: that of the environment `venv` beside the package if there is one,
  // else python3.
  std::string python;
  // What the package reads: its file and its options.
  std::vector<std::string> arguments;
};

// Becomes the Python program: returns only where that fails, with the exit code. The package lies in
// ../share/slackline/python beside the folder of this program; in a build folder there are links.
int Experiment(const ExperimentOptions& options);
int Plan(const ExperimentOptions& options);
int TraceFiles(const ExperimentOptions& options);

}  // namespace slackline::cli

// `slackline experiment` and `slackline plan`: hand over to the Python packages of these names.
#pragma once

#include <string>
#include <vector>

namespace slackline::cli {

struct ExperimentOptions {
  // Interpreter, as a path or a name on PATH; empty: that of the build's private environment if it is there, else
  // python3.
  std::string python;
  // What the package reads: its file and its options.
  std::vector<std::string> arguments;
};

// Becomes the Python program: returns only where that fails, with the exit code. The package lies in
// ../share/slackline/python beside the folder of this program, else in the source tree that it was built from.
int Experiment(const ExperimentOptions& options);
int Plan(const ExperimentOptions& options);

}  // namespace slackline::cli

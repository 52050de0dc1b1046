#include "cli/commands/experiment.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/commands/train.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

std::string Interpreter(const std::string& wanted, const fs::path& shared) {
  if (!wanted.empty()) return wanted;
  const fs::path own = shared / "venv" / "bin" / "python";
  return ::access(own.c_str(), X_OK) == 0 ? own.string() : "python3";
}

// Returns only on failure.
int Become(std::vector<std::string> command) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  std::fprintf(stderr, "slackline: cannot start the Python interpreter '%s': %s; name one with --python\n", words[0],
               std::strerror(errno));
  return kExitWrongUse;
}

int RunPackage(const std::string& package, const ExperimentOptions& options) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    std::fprintf(stderr, "slackline: cannot tell where this program is: /proc/self/exe is not readable\n");
    return kExitFailed;
  }
  const fs::path shared = program.parent_path().parent_path() / "share" / "slackline";
  const fs::path folder = shared / "python" / package;
  if (!fs::exists(folder / "__main__.py", error)) {
    std::fprintf(stderr, "slackline: there is no Python package %s; install all of Slackline under one prefix\n",
                 folder.c_str());
    return kExitFailed;
  }
  std::vector<std::string> command = {Interpreter(options.python, shared), folder, "--slackline", program};
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return Become(std::move(command));
}

}  // namespace

int Experiment(const ExperimentOptions& options) { return RunPackage("slackline_experiment", options); }
int Compare(const ExperimentOptions& options) { return RunPackage("slackline_compare", options); }
int Track(const ExperimentOptions& options) { return RunPackage("slackline_track", options); }
int Plan(const ExperimentOptions& options) { return RunPackage("slackline_plan", options); }
int TraceFiles(const ExperimentOptions& options) { return RunPackage("slackline_trace", options); }

}  // namespace slackline::cli

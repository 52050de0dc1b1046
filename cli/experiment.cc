#include "cli/experiment.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/train.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Where the package may lie, the installed one first.
std::vector<fs::path> PackageFolders(const fs::path& program, const std::string& package) {
  return {program.parent_path().parent_path() / "share" / "slackline" / "python" / package,
          fs::path(SLACKLINE_PYTHON_FOLDER) / package};
}

std::string Interpreter(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  return ::access(SLACKLINE_VENV_PYTHON, X_OK) == 0 ? SLACKLINE_VENV_PYTHON : "python3";
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
  const std::vector<fs::path> folders = PackageFolders(program, package);
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder / "__main__.py", error)) continue;
    std::vector<std::string> command = {Interpreter(options.python), folder, "--slackline", program};
    command.insert(command.end(), options.arguments.begin(), options.arguments.end());
    return Become(std::move(command));
  }
  std::fprintf(stderr, "slackline: found no Python package %s; looked in %s and %s\n", package.c_str(),
               folders[0].parent_path().c_str(), folders[1].parent_path().c_str());
  return kExitFailed;
}

}  // namespace

int Experiment(const ExperimentOptions& options) { return RunPackage("slackline_experiment", options); }
int Plan(const ExperimentOptions& options) { return RunPackage("slackline_plan", options); }

}  // namespace slackline::cli

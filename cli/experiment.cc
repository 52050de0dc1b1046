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

}  // namespace

int Experiment(const ExperimentOptions& options) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    std::fprintf(stderr, "slackline: cannot tell where this program is: /proc/self/exe is not readable\n");
    return kExitFailed;
  }
  const fs::path shared = program.parent_path().parent_path() / "share" / "slackline";
  const fs::path package = shared / "python" / "slackline_experiment";
  if (!fs::exists(package / "__main__.py", error)) {
    std::fprintf(stderr, "slackline: there is no Python package %s; install all of Slackline under one prefix\n",
                 package.c_str());
    return kExitFailed;
  }
  std::vector<std::string> command = {Interpreter(options.python, shared), package, "--slackline", program};
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return Become(std::move(command));
}

}  // namespace slackline::cli

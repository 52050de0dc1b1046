#include "cli/commands/packages.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "cli/base/complain.h"
#include "cli/base/python_package.h"
#include "cli/base/sibling.h"

namespace slackline::cli {
namespace {

// Replaces this process with the Python package; returns only on failure, with the exit code. `python` is that of
// PackageCommand().
int RunPackage(const char* package, const std::string& python, const std::vector<std::string>& arguments) {
  absl::StatusOr<std::vector<std::string>> command = PackageCommand(package, python);
  if (!command.ok()) {
    std::fprintf(stderr, "slackline: %s\n", std::string(command.status().message()).c_str());
    return kExitFailed;
  }
  command->insert(command->end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& word : *command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  std::fprintf(stderr, "slackline: cannot start the Python interpreter '%s': %s; name one with --python\n", words[0],
               std::strerror(errno));
  return kExitWrongUse;
}

// Takes --python and its value out of the words before "--"; returns the value, or an empty text.
std::string TakePython(std::vector<std::string>& words) {
  const auto end = absl::c_find(words, "--");
  const auto found = std::find_if(words.begin(), end, [](const std::string& word) {
    return word == "--python" || absl::StartsWith(word, "--python=");
  });
  if (found == end) return "";
  const bool apart = *found == "--python";
  // The package says what is missing.
  if (apart && std::next(found) == end) return "";
  std::string python = apart ? *std::next(found) : found->substr(found->find('=') + 1);
  words.erase(found, std::next(found, apart ? 2 : 1));
  return python;
}

// Adds a command whose options, --help too, are those of a Python package.
AddedCommand AddPackage(CLI::App& app, const char* name, const char* what, const char* package) {
  const auto python = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(name, what);
  command->set_help_flag();
  // Words behind the first one that is unknown here stay as they are, also "--".
  command->prefix_command();
  command->add_option("--python", *python, "Python interpreter. Default: that of the build, or python3")
      ->type_name("PROGRAM");
  return {command, [=] {
            std::vector<std::string> words = command->remaining();
            const std::string behind = TakePython(words);
            return RunPackage(package, behind.empty() ? *python : behind, words);
          }};
}

int Simulate(const std::vector<std::string>& arguments) {
  // A simulation without gradients needs no LibTorch, and a wheel's own simulator starts at once.
  const bool gradients = !absl::c_linear_search(arguments, "--no-gradients");
  absl::StatusOr<std::filesystem::path> program = Sibling(gradients ? kTorchSimulator : kSimulator);
  if (absl::IsNotFound(program.status())) program = Sibling(kSimulator);
  const absl::Status status = program.ok() ? Become(*program, arguments) : program.status();
  std::fprintf(stderr, "slackline simulate: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

}  // namespace

AddedCommand AddExperiment(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "experiment", "Run a grid of jobs with repeats, and compare them", "slackline_experiment");
}

AddedCommand AddCompare(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "compare", "Compare runs in tables, plots and one page", "slackline_compare");
}

AddedCommand AddPlan(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "plan", "Estimate how long a job takes on N nodes", "slackline_plan");
}

AddedCommand AddTrace(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "trace", "Convert traces of workers to OpenTelemetry spans", "slackline_trace");
}

AddedCommand AddTrack(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "track", "Write a run's figures for Weights & Biases and MLflow", "slackline_track");
}

AddedCommand AddSimulate(CLI::App& app, const char* /*program*/) {
  CLI::App* command = app.add_subcommand("simulate", "Run a job in virtual time, in one process");
  command->set_help_flag();
  command->prefix_command();
  return {command, [command] { return Simulate(command->remaining()); }};
}

}  // namespace slackline::cli

// Options that several commands have.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands/status.h"
#include "cli/run/script.h"
#include "cli/service/service_folder.h"
#include "common/job/command_options.h"

namespace slackline::cli {

inline void AddQuiet(CLI::App& command, bool& quiet) { command.add_flag("--quiet", quiet, "Show only the result"); }

// Lets an option for a run also take a job of the service.
inline void TakeJobNumbers(CLI::Option& option) {
  option.transform([](const std::string& target) {
    const absl::StatusOr<std::string> run = RunOfTarget(target);
    if (!run.ok()) throw CLI::ValidationError(std::string(run.status().message()));
    return *run;
  });
}

// Adds a run that goes on. `what` describes the names that it may have, besides the number of a job of the service.
inline CLI::Option* AddRun(CLI::App& command, StatusOptions& run,
                           const char* what = "Run folder, number of a job, or HOST:PORT of the scheduler") {
  CLI::Option* const option = command.add_option("RUN", run.target, what)->required();
  command
      .add_option("--job", run.job_file,
                  "Job file, whose section `security` tells how to connect. Default: that of the run folder")
      ->type_name("JOB.yaml");
  return option;
}

// CLI11 would take an argument such as [0.9,0.99] for two: KeepBrackets() marks words in brackets for it, and
// AddScript() takes the mark away again.
inline constexpr char kBracketMark = '\x01';
inline std::vector<std::string> KeepBrackets(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (auto word = std::find(words.begin(), words.end(), "--"); word != words.end(); ++word) {
    if (!word->empty() && word->front() == '[' && word->back() == ']') word->push_back(kBracketMark);
  }
  return words;
}

inline void AddScript(CLI::App& command, ScriptOptions& options) {
  command.add_option("ARGS", options.arguments, "Arguments of the script, after --")->transform([](std::string word) {
    if (!word.empty() && word.back() == kBracketMark) word.pop_back();
    return word;
  });
  command.add_option("--python", options.python, "Python interpreter that has the package slackline. Default: python3")
      ->type_name("PROGRAM");
}

}  // namespace slackline::cli

#include "cli/run/script.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include <nlohmann/json.hpp>
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/replace_file.h"
#include "cli/base/shell_word.h"
#include "common/base/check.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Looks names up in $PATH.
constexpr char kEnvOfScript[] = "/usr/bin/env";
constexpr char kPython[] = "python3";
// Setting of a job whose model comes from a script.
constexpr char kExternal[] = "model.kind=external";
// In the run folder.
constexpr char kKept[] = "script.json";

// Returns the place of the script in a command of CommandOf(), behind the interpreter.
size_t PlaceOfScript(const std::vector<std::string>& command) {
  return !command.empty() && command.front() == kEnvOfScript ? 2 : 1;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CommandOf(const ScriptOptions& options) {
  std::vector<std::string> command;
  if (options.script.empty()) {
    if (options.python.empty() && options.arguments.empty()) return command;
    return absl::InvalidArgumentError(
        "found --python or arguments of a script, and no script; allowed is --script SCRIPT with them");
  }
  std::error_code error;
  if (!fs::is_regular_file(options.script, error)) {
    return absl::NotFoundError(absl::StrCat("found no file ", options.script, "; allowed is a script in Python"));
  }
  const std::string python = options.python.empty() ? kPython : options.python;
  if (python.find('/') == std::string::npos) {
    command = {kEnvOfScript, python};
  } else if (fs::exists(python, error)) {
    command = {fs::absolute(python)};
  } else {
    return absl::NotFoundError(absl::StrCat("--python: found no file ", python, "; allowed is a Python interpreter"));
  }
  command.push_back(fs::absolute(options.script));
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

bool IsInPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::error_code error;
  const std::vector<std::string> folders = absl::StrSplit(path == nullptr ? "" : path, ':');
  for (const fs::path folder : folders) {
    const fs::path file = folder / program;
    if (fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0) return true;
  }
  return false;
}

absl::Status CheckInterpreter(const std::vector<std::string>& command) {
  if (command.empty() || command.front() != kEnvOfScript || IsInPath(command[1])) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--python: found no program ", command[1],
                                          " in the folders of $PATH; allowed is a Python interpreter, or its path"));
}

absl::StatusOr<std::vector<std::string>> CommandToGoOn(const ScriptOptions& options, const fs::path& run) {
  absl::StatusOr<std::vector<std::string>> command = CommandOf(options);
  if (!command.ok() || !command->empty()) return command;
  std::vector<std::string> kept = KeptScript(run);
  const std::string script = ScriptIn(kept);
  std::error_code error;
  if (script.empty() || fs::is_regular_file(script, error)) return kept;
  return absl::NotFoundError(absl::StrCat(
      "found no file ", script, ", the script of this run; if the script has moved, name it with --script SCRIPT"));
}

StartText StartTextOf(const std::string& program, const std::vector<std::string>& script, const std::string& job_file,
                      const std::vector<std::string>& overrides) {
  StartText text;
  if (script.empty()) {
    text.head = absl::StrCat(program, " train ", ShellWord(job_file));
  } else {
    const size_t at = PlaceOfScript(script);
    text.head = absl::StrCat(program, " launch ", ShellWord(script[at]), " ", ShellWord(job_file));
    if (script[at - 1] != kPython) absl::StrAppend(&text.head, " --python ", ShellWord(script[at - 1]));
    if (script.size() > at + 1) text.tail = " --";
    for (size_t i = at + 1; i < script.size(); ++i) absl::StrAppend(&text.tail, " ", ShellWord(script[i]));
  }
  for (const std::string& one : overrides) {
    // ReadJobOfWorkers() adds this setting to every job of scripts.
    if (script.empty() || one != kExternal) absl::StrAppend(&text.head, " --set ", ShellWord(one));
  }
  return text;
}

std::string ScriptIn(const std::vector<std::string>& command) {
  const size_t at = PlaceOfScript(command);
  return at < command.size() ? command[at] : "";
}

std::string InterpreterIn(const std::vector<std::string>& command) {
  const size_t at = PlaceOfScript(command);
  return at < command.size() ? command[at - 1] : "";
}

std::vector<std::string> ArgumentsIn(const std::vector<std::string>& command) {
  const size_t at = PlaceOfScript(command) + 1;
  return {command.begin() + static_cast<std::ptrdiff_t>(std::min(at, command.size())), command.end()};
}

absl::StatusOr<job::Job> ReadJobOfWorkers(const std::vector<std::string>& script, const std::string& job_file,
                                          std::vector<std::string>& overrides) {
  if (script.empty()) return ReadJobFile(job_file, overrides);
  // A script may train a model that is known here, beside workers that are no scripts.
  absl::StatusOr<job::Job> job = ReadJobFile(job_file, overrides, job::Model::EXTERNAL);
  if (job.ok() && job->model().kind() == job::Model::EXTERNAL && !absl::c_linear_search(overrides, kExternal)) {
    overrides.push_back(kExternal);
  }
  return job;
}

absl::Status CheckWorkers(const std::vector<std::string>& script, const job::Job& job) {
  if (!RunsScripts(job) || !script.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "model.kind: found external; allowed is a model that is known here, or a script that brings one: `slackline "
      "launch SCRIPT JOB`, `slackline resume RUN --script SCRIPT`, `slackline slurm submit JOB --script SCRIPT`");
}

absl::Status KeepScript(const std::vector<std::string>& script, const fs::path& run) {
  if (script.empty()) return absl::OkStatus();
  for (const std::string& word : script) {
    if (IsUtf8(word)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the command of the script: found '", ValidText(word),
                                                   "', not UTF-8; allowed are words in UTF-8"));
  }
  std::error_code error;
  fs::create_directories(run, error);
  return ReplaceFile(run / kKept, DumpJson(nlohmann::json(script), 2) + "\n");
}

std::vector<std::string> KeptScript(const fs::path& run) {
  const nlohmann::json kept = ReadJson(run / kKept);
  std::vector<std::string> script;
  if (!kept.is_array()) return script;
  for (const nlohmann::json& word : kept) {
    if (word.is_string()) script.push_back(word.get<std::string>());
  }
  return script;
}

std::vector<std::string> EnvironmentOf(const std::vector<std::string>& worker_arguments) {
  std::vector<std::string> environment;
  std::vector<std::string> settings;
  for (size_t i = 0; i < worker_arguments.size(); ++i) {
    const std::string& argument = worker_arguments[i];
    if (argument == "--supervised") {
      environment.push_back("SLACKLINE_SUPERVISED=1");
      continue;
    }
    SLACKLINE_CHECK(i + 1 < worker_arguments.size());
    const std::string& value = worker_arguments[++i];
    if (argument == "--set") settings.push_back(value);
    if (argument == "--topology") environment.push_back(absl::StrCat("SLACKLINE_TOPOLOGY=", value));
  }
  if (!settings.empty()) environment.push_back(absl::StrCat("SLACKLINE_SET=", absl::StrJoin(settings, "\n")));
  return environment;
}

}  // namespace slackline::cli

#include "cli/launch.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/complain.h"
#include "cli/run_checks.h"
#include "common/job_file.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Looks names up in $PATH.
constexpr char kEnvOfScript[] = "/usr/bin/env";

}  // namespace

absl::StatusOr<std::vector<std::string>> CommandOf(const ScriptOptions& options) {
  std::vector<std::string> command;
  if (options.script.empty()) return command;
  std::error_code error;
  if (!fs::is_regular_file(options.script, error)) {
    return absl::NotFoundError(absl::StrCat("found no file ", options.script, "; allowed is a script in Python"));
  }
  const std::string python = options.python.empty() ? "python3" : options.python;
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

int Launch(const LaunchOptions& options) {
  TrainOptions train = options.train;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(options.script);
  if (!command.ok()) return Fail(command.status(), kExitWrongUse);
  train.script = *std::move(command);
  if (options.servers) train.overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  if (options.workers) train.overrides.push_back(absl::StrCat("cluster.workers=", *options.workers));
  const absl::StatusOr<job::Job> job = ReadJobFile(train.job_file, train.overrides);
  if (!job.ok()) return Fail(job.status(), kExitWrongUse);
  // A script may train a model that is known here, beside workers that are no scripts.
  if (!job->model().has_kind()) train.overrides.push_back("model.kind=external");
  return Train(train);
}

int Resume(const ResumeOptions& options, const ScriptOptions& script) {
  ResumeOptions resume = options;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(script);
  if (!command.ok()) return Fail(command.status(), kExitWrongUse);
  resume.script = *std::move(command);
  return Resume(resume);
}

}  // namespace slackline::cli

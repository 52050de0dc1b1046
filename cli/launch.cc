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
constexpr char kEnv[] = "/usr/bin/env";

}  // namespace

absl::StatusOr<TrainOptions> ToTrainOptions(const LaunchOptions& options) {
  std::error_code error;
  if (!fs::is_regular_file(options.script, error)) {
    return absl::NotFoundError(absl::StrCat("found no file ", options.script, "; allowed is a script in Python"));
  }
  TrainOptions train = options.train;
  if (options.servers) train.overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  if (options.workers) train.overrides.push_back(absl::StrCat("cluster.workers=", *options.workers));
  const absl::StatusOr<job::Job> job = ReadJobFile(train.job_file, train.overrides);
  if (!job.ok()) return job.status();
  // A script may train a model that is known here, beside workers that are no scripts.
  if (!job->model().has_kind()) train.overrides.push_back("model.kind=external");
  const std::string python = options.python.empty() ? "python3" : options.python;
  const bool is_path = python.find('/') != std::string::npos;
  if (is_path && !fs::exists(python, error)) {
    return absl::NotFoundError(absl::StrCat("--python: found no file ", python, "; allowed is a Python interpreter"));
  }
  if (is_path) {
    train.script = {fs::absolute(python)};
  } else {
    train.script = {kEnv, python};
  }
  train.script.push_back(fs::absolute(options.script));
  train.script.insert(train.script.end(), options.arguments.begin(), options.arguments.end());
  return train;
}

int Launch(const LaunchOptions& options) {
  const absl::StatusOr<TrainOptions> train = ToTrainOptions(options);
  if (!train.ok()) return Fail(train.status(), kExitWrongUse);
  return Train(*train);
}

}  // namespace slackline::cli

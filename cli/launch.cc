#include "cli/launch.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/complain.h"
#include "cli/run_checks.h"

namespace slackline::cli {

int Launch(const LaunchOptions& options) {
  TrainOptions train = options.train;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(options.script);
  if (!command.ok()) return Fail(command.status(), kExitWrongUse);
  train.script = *std::move(command);
  if (options.servers) train.overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  if (options.workers) train.overrides.push_back(absl::StrCat("cluster.workers=", *options.workers));
  const absl::StatusOr<job::Job> job = ReadJobOfWorkers(train.script, train.job_file, train.overrides);
  if (!job.ok()) return Fail(job.status(), kExitWrongUse);
  return Train(train);
}

int Resume(const ResumeOptions& options, const ScriptOptions& script) {
  ResumeOptions resume = options;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(script);
  if (!command.ok()) return Fail(command.status(), kExitWrongUse);
  resume.script = *std::move(command);
  if (resume.script.empty()) {
    resume.script = KeptScript(options.run_folder);
    const std::string kept = ScriptIn(resume.script);
    std::error_code error;
    if (!kept.empty() && !std::filesystem::is_regular_file(kept, error)) {
      return Fail(absl::NotFoundError(absl::StrCat(
                      "found no file ", kept, ", the script of this run; allowed is --script SCRIPT, where it is now")),
                  kExitWrongUse);
    }
  }
  return Resume(resume);
}

}  // namespace slackline::cli

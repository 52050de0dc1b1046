#include "cli/commands/launch.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/complain.h"

namespace slackline::cli {

int Launch(const LaunchOptions& options) {
  TrainOptions train = options.train;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(options.script);
  if (!command.ok()) return ComplainOfWrongUse(command.status());
  if (absl::Status found = CheckInterpreter(*command); !found.ok()) return Complain(found);
  train.script = *std::move(command);
  if (options.servers) train.overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  if (options.workers) train.overrides.push_back(absl::StrCat("cluster.workers=", *options.workers));
  if (options.per_node) train.overrides.push_back(absl::StrCat("worker.per_node=", *options.per_node));
  if (options.node_group) train.overrides.push_back("worker.node_group=true");
  if (!options.workers && (options.per_node || options.node_group)) {
    // This machine is one node.
    train.overrides.push_back(absl::StrCat("cluster.workers=", options.node_group ? 1 : *options.per_node));
  }
  const absl::StatusOr<job::Job> job = ReadJobOfWorkers(train.script, train.job_file, train.overrides);
  if (!job.ok()) return ComplainOfWrongUse(job.status());
  return Train(train);
}

int Resume(const ResumeOptions& options, const ScriptOptions& script) {
  ResumeOptions resume = options;
  absl::StatusOr<std::vector<std::string>> command = CommandToGoOn(script, options.run_folder);
  if (!command.ok()) return ComplainOfWrongUse(command.status());
  if (absl::Status found = CheckInterpreter(*command); !found.ok()) return Complain(found);
  resume.script = *std::move(command);
  return Resume(resume);
}

}  // namespace slackline::cli

// Settings of the servers' optimizer that a script gives because the job file does not name them.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/script_group.h"
#include "job.pb.h"

namespace slackline {

// Reads a script's settings: "kind=adamw", "lr=0.002" and others of a job file's `optimizer`.
//   kInvalidArgument  a setting that does not exist, that only the job file may give, or whose value is not allowed
absl::StatusOr<job::Optimizer> ReadScriptOptimizer(absl::Span<const std::string> settings,
                                                   absl::Span<const ScriptGroup> groups);

// Returns the optimizer of a job whose script gives `script`. The job file decides: settings that it names must agree.
// `job` may be resolved.
//   kInvalidArgument  the job file names another value, or groups; a value is out of range; settings contradict each
//                     other; the job's workers are no scripts
absl::StatusOr<job::Optimizer> WithScriptOptimizer(const job::Job& job, const job::Optimizer& script);

// Removes from a resolved job of scripts the settings that a script may give and that `given` does not name: the script
// decides on them.
void LeaveToScript(const job::Job& given, job::Job& resolved);
// Returns whether a resolved job leaves settings to scripts.
bool LeavesToScript(const job::Job& resolved);

// Returns the settings that a script gives, by key ("optimizer.lr", "optimizer.groups[0].weight_decay"), as text.
std::map<std::string, std::string> SettingsOf(const job::Optimizer& script);

// Returns the optimizer and its settings as a line for people: "adamw, lr 0.002, beta1 0.9, ...".
std::string OptimizerText(const job::Optimizer& optimizer);

}  // namespace slackline

// Reads the job file: YAML into the protobuf message Job, strictly.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job.pb.h"

namespace slackline {

// Reads `path` into Job, applies `overrides` ("optimizer.lr=0.1"; lists as "model.hidden=[64,32]", maps as
// "worker.slowdown={1: 12}"), and checks everything. Unset fields have their default from the schema; Resolve() writes
// them out. The path "-" is the standard input; relative paths in it count from the present folder. A job that names no
// model.kind gets `kind`, if there is one.
//   kNotFound         the file cannot be read
//   kInvalidArgument  every mistake found, one a line, each as "FILE:LINE: found X; allowed is Y" (overrides as
//                     "--set KEY=VALUE: ..."): unknown key (with the nearest known one), wrong type, out of range,
//                     repeated key, impossible combination
absl::StatusOr<job::Job> ReadJobFile(const std::string& path, absl::Span<const std::string> overrides = {},
                                     std::optional<job::Model::Kind> kind = {});
// Like ReadJobFile(), but from text. Messages call the text `name`.
absl::StatusOr<job::Job> ParseJob(const std::string& text, const std::string& name,
                                  absl::Span<const std::string> overrides = {},
                                  std::optional<job::Model::Kind> kind = {});

// Returns the job with every default written out, but for settings of the optimizer that are left to scripts
// (script_optimizer.h).
job::Job Resolve(const job::Job& job);
// Returns YAML with every field of the resolved job, which ReadJobFile() reads back to an equal job.
std::string ToYaml(const job::Job& job);

// A setting of a job by its key, such as optimizer.lr or worker.groups[0].batch, with its value as in YAML.
struct SettingView {
  std::string key;
  std::string value;
  // True if a job that sets only model.kind has the same value.
  bool is_default = false;
};
// Returns all settings, in the order of the schema.
std::vector<SettingView> SettingsOf(const job::Job& job);
// Returns a value that is equal for jobs that train the same way, in every process and on every machine. Excluded are
// the place of the output and settings that may differ from host to host: output, network, data.path, worker.threads,
// worker.cores, cluster.worker_restarts_max, and all of security except the mode.
uint64_t Fingerprint(const job::Job& job);

}  // namespace slackline

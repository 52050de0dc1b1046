// The job file: YAML onto the protobuf message Job, strictly.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job.pb.h"

namespace slackline {

// Reads `path` onto Job, then applies `overrides` ("optimizer.lr=0.1"; lists as "model.hidden=[64,32]", maps as
// "worker.slowdown={1: 12}"), then
// checks everything. Unset fields have their default from the schema; Resolve() writes them out.
//   kNotFound         the file cannot be read
//   kInvalidArgument  every mistake found, one a line, each as "FILE:LINE: found X; allowed is Y" (overrides as
//                     "--set KEY=VALUE: ..."): unknown key (with the nearest known one), wrong type, out of range,
//                     repeated key, impossible combination
absl::StatusOr<job::Job> ReadJobFile(const std::string& path, absl::Span<const std::string> overrides = {});
// The same from text; `name` stands for the file in messages.
absl::StatusOr<job::Job> ParseJob(const std::string& text, const std::string& name,
                                  absl::Span<const std::string> overrides = {});

// The job with every default written out.
job::Job Resolve(const job::Job& job);
// YAML that ReadJobFile() reads back to an equal job; every field is there.
std::string ToYaml(const job::Job& job);
// Equal for jobs that train the same way, in every process and on every machine: covers all but where the output
// goes, and what may differ from host to host (output, network, data.path, worker.threads, worker.cores,
// cluster.worker_restarts_max, and of security all but the mode).
uint64_t Fingerprint(const job::Job& job);

}  // namespace slackline

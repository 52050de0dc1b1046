// Data that the status page asks for when somebody opens it: settings of the job, and the ends of logs.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "job.pb.h"

namespace slackline::scheduler {

// Returns {"settings": [{"key": ..., "value": ..., "default": true or false}, ...]}, in the order of the schema.
std::string SettingsJson(const job::Job& job);

// Returns {"logs": [{"name": ..., "bytes": ...}, ...]} by name: the logs of processes in the run folder, logs/NAME.log.
// Symbolic links do not count. At most kLogsShown.
std::string LogsJson(const std::string& run_folder);

// Returns the last kLogLinesShown lines of logs/NAME.log, at most kLogBytesShown bytes, in UTF-8; nullopt if LogsJson()
// does not list the name. Reads nothing outside of the run folder.
std::optional<std::string> LogTail(const std::string& run_folder, absl::string_view name);

}  // namespace slackline::scheduler

// `slackline status`: how a run is doing, or how it ended.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "common/rpc/channel.h"

namespace slackline::cli {

struct StatusOptions {
  // Run to show: host:port, a run folder, or the address of a status page.
  std::string target;
  // Job file whose `security` section says how to connect. Empty: job.yaml of the run folder; plain text to a
  // host:port.
  std::string job_file;
  // Shows the status repeatedly until the job has ended.
  bool watch = false;
  // Prints JSON, as /api/status of the status page has it.
  bool json = false;
};

// Returns the address of the target's scheduler.
//   kInvalidArgument  neither a run folder nor HOST:PORT
//   kNotFound         the run folder has no address of a scheduler
absl::StatusOr<std::string> FindAddress(const std::string& target);

// Returns how to connect to the target's scheduler; null: in plain text.
absl::StatusOr<std::shared_ptr<const rpc::Protection>> FindProtection(const StatusOptions& options);

AddedCommand AddStatus(CLI::App& app, const char* program);

}  // namespace slackline::cli

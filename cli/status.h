// `slackline status`: how a run is doing, or how it ended.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/channel.h"

namespace slackline::cli {

struct StatusOptions {
  // host:port, a run folder, or the address of a status page.
  std::string target;
  // Whose `security` section says how to connect; empty: job.yaml of the run folder, and plain text to a host:port.
  std::string job_file;
  // Shows it again and again until the job has ended.
  bool watch = false;
  // As /api/status of the status page.
  bool json = false;
};

// Of the scheduler of the target.
//   kInvalidArgument  neither a run folder nor HOST:PORT
absl::StatusOr<std::string> FindAddress(const std::string& target);

// How to connect to the scheduler of the target; null: in plain text.
absl::StatusOr<std::shared_ptr<const rpc::Protection>> FindProtection(const StatusOptions& options);

// Prints, and returns the exit code: kExitDone where the run goes on or is done.
int Status(const StatusOptions& options);

}  // namespace slackline::cli

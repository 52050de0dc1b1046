// `slackline slurm node`: looks after the processes of one node of an allocation, as `slackline slurm run` has planned.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace slackline::cli::slurm {

struct NodeOptions {
  // The folder of the Meeting.
  std::string meeting;
  // As AddressOfNode() has it.
  std::string interface;
  // Where the launcher is lost, the job goes back into the queue.
  bool requeue = true;
  // How long it waits for the plan.
  absl::Duration patience = absl::Minutes(10);
};

// Until the plan says that all is over. Returns the exit code.
int ServeNode(const NodeOptions& options);

}  // namespace slackline::cli::slurm

// `slackline slurm node`: looks after the processes of one node of an allocation, as `slackline slurm run` has planned.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace slackline::cli::slurm {

struct NodeOptions {
  // Folder of the Meeting.
  std::string meeting;
  // Network interface, as for AddressOfNode().
  std::string interface;
  // True to put the job back into the queue if the launcher is lost.
  bool requeue = true;
  // Time to wait for the plan.
  absl::Duration patience = absl::Minutes(10);
};

// Looks after the node until the plan says that all is over. Returns the exit code.
int ServeNode(const NodeOptions& options);

}  // namespace slackline::cli::slurm

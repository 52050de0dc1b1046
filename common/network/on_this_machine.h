// The meaning of a job's `network` section on this machine.
#pragma once

#include "absl/status/statusor.h"
#include "job.pb.h"

namespace slackline::network {

// Returns the section with `interface` replaced by its address, in `listen`. Returns it unchanged if it names no
// interface.
//   kInvalidArgument  network.interface is malformed, or matches no interface here: names those that exist
absl::StatusOr<job::Network> OnThisMachine(const job::Network& network);

}  // namespace slackline::network

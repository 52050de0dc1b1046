// What a job's `network` section means on this machine.
#pragma once

#include "absl/status/statusor.h"
#include "job.pb.h"

namespace slackline::network {

// The section with an address in the place of the interface, in `listen`; the same where it names no interface.
//   kInvalidArgument  network.interface is none, or none that is there: names those that are
absl::StatusOr<job::Network> OnThisMachine(const job::Network& network);

}  // namespace slackline::network

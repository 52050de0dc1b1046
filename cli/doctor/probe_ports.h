// Checks whether this machine can listen where the job says, by listening there for a moment.
#pragma once

#include <cstdint>

#include "cli/doctor/facts.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

// `needed` is the number of ports of network.ports that this machine's processes take. Stops when that many free ports
// are found.
PortFacts ProbePorts(const job::Network& network, uint32_t needed);

}  // namespace slackline::cli::doctor

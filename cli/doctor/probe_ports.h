// Whether this machine can listen where the job says: tried by listening, for a moment.
#pragma once

#include <cstdint>

#include "cli/doctor/facts.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

// `needed`: ports of network.ports that this machine's processes take; more than those are not tried.
PortFacts ProbePorts(const job::Network& network, uint32_t needed);

}  // namespace slackline::cli::doctor

// Derives alerts, which a person should look at, and nodes, where the members are, from a JobStatus. Pure.
#pragma once

#include "status.pb.h"

namespace slackline::scheduler {

// Fills `alerts`, the worst first. Members of one kind share an alert.
void AddAlerts(wire::JobStatus& status);
// Fills `nodes` from workers and servers.
void AddNodes(wire::JobStatus& status);

}  // namespace slackline::scheduler

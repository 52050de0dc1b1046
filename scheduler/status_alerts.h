// What a person should look at, and where the members are: derived from what a JobStatus says. Pure.
#pragma once

#include "status.pb.h"

namespace slackline::scheduler {

// Fills `alerts`, the worst first. Members of one kind share an alert.
void AddAlerts(wire::JobStatus& status);
// Fills `nodes` from workers and servers.
void AddNodes(wire::JobStatus& status);

}  // namespace slackline::scheduler

// Chooses the server that a new backup follows, so that no machine failure, and no switch failure, takes both. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "parameter_server.pb.h"

namespace slackline::scheduler {

// Returns how little can take both: 0 one machine, 1 one switch, 2 more. Places that are unknown count as far.
int DistanceOf(const wire::LocalAddress& one, const wire::LocalAddress& other);

// Returns a server without a backup that is farthest from `backup`; nullopt if `open` is empty.
//
// Backups come one by one and keep what they get, so Hall's condition decides among equally far servers: the servers of
// a machine can only be followed from other machines. A machine is therefore served first if its servers are many for
// the processes that are still to come from elsewhere. If as many processes run on each machine, no pair is then on one
// machine, nor on one switch if that is possible.
//   open  servers without a backup
//   seen  all servers and backups that are present, this one among them
std::optional<ServerId> ChooseServer(const wire::LocalAddress& backup,
                                     const std::map<ServerId, wire::LocalAddress>& open,
                                     const std::vector<wire::LocalAddress>& seen);

}  // namespace slackline::scheduler

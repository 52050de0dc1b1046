// Which server a new backup follows, so that no machine, and no switch, takes both. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "parameter_server.pb.h"

namespace slackline::scheduler {

// How little can take both: 0 one machine, 1 one switch, 2 more. What nobody knows is taken to be far.
int DistanceOf(const wire::LocalAddress& one, const wire::LocalAddress& other);

// Of the servers without a backup one that is farthest from `backup`. Backups come one by one and keep what they get,
// so among those the choice goes by Hall's condition: a machine's servers can only be followed from other machines, so
// it is served first whose servers are many for the processes that are still to come from elsewhere. Where as many
// processes run on each machine, no pair is then on one machine, nor on one switch, if that is possible.
//   open  servers without a backup
//   seen  all servers and backups that there are, this one among them
std::optional<ServerId> ChooseServer(const wire::LocalAddress& backup,
                                     const std::map<ServerId, wire::LocalAddress>& open,
                                     const std::vector<wire::LocalAddress>& seen);

}  // namespace slackline::scheduler

// Divides a model among the servers by the links that pulls and pushes go over. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/ids.h"

namespace slackline::scheduler {

struct MachineLink {
  // Name of the server's machine; servers with the same name share one link. Empty: unknown.
  std::string machine;
  // Speed of the machine's link; 0: unknown.
  uint32_t mbit = 0;
};

// Returns each server's share in Mbit/s: the link of its machine, divided among the servers there. The result is empty,
// and all servers are to hold equally much, if any link or machine is unknown: a guess would be worse than none.
std::map<ServerId, double> LinkShares(const std::map<ServerId, MachineLink>& links);

// Returns the share of one server; 1 if there are no shares.
double ShareOf(const std::map<ServerId, double>& shares, ServerId server);

}  // namespace slackline::scheduler

#include "scheduler/shards/link_shares.h"

namespace slackline::scheduler {

std::map<ServerId, double> LinkShares(const std::map<ServerId, MachineLink>& links) {
  std::map<std::string, uint32_t> there;
  for (const auto& [server, link] : links) {
    if (link.machine.empty() || link.mbit == 0) return {};
    ++there[link.machine];
  }
  std::map<ServerId, double> shares;
  for (const auto& [server, link] : links) shares[server] = static_cast<double>(link.mbit) / there[link.machine];
  return shares;
}

double ShareOf(const std::map<ServerId, double>& shares, ServerId server) {
  const auto found = shares.find(server);
  return found == shares.end() ? 1 : found->second;
}

}  // namespace slackline::scheduler

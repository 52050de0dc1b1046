#include "scheduler/shards/pairing.h"

#include <string>
#include <tuple>

namespace slackline::scheduler {
namespace {

// Empty where nobody knows: then all are on one.
std::string SwitchAbove(const wire::LocalAddress& address) {
  const size_t dot = address.topology().rfind('.');
  return dot == std::string::npos ? "" : address.topology().substr(0, dot);
}

std::string MachineOf(const wire::LocalAddress& address) {
  return address.topology().empty() ? address.host() : address.topology();
}

}  // namespace

int DistanceOf(const wire::LocalAddress& one, const wire::LocalAddress& other) {
  const bool topology = !one.topology().empty() && !other.topology().empty();
  if (topology) return one.topology() == other.topology() ? 0 : SwitchAbove(one) == SwitchAbove(other) ? 1 : 2;
  return !one.host().empty() && one.host() == other.host() ? 0 : 2;
}

std::optional<ServerId> ChooseServer(const wire::LocalAddress& backup,
                                     const std::map<ServerId, wire::LocalAddress>& open,
                                     const std::vector<wire::LocalAddress>& seen) {
  // Servers without a backup, less the processes that are there: with as many on each machine, those still to come are
  // a constant less these.
  std::map<std::string, int> of_machine;
  std::map<std::string, int> of_switch;
  const auto count = [&](const wire::LocalAddress& address, int by) {
    of_machine[MachineOf(address)] += by;
    of_switch[SwitchAbove(address)] += by;
  };
  for (const auto& [id, address] : open) count(address, 1);
  for (const wire::LocalAddress& address : seen) count(address, -1);
  std::optional<ServerId> best;
  std::tuple<int, int, int> best_rank;
  for (const auto& [id, address] : open) {
    const std::tuple<int, int, int> rank = {DistanceOf(address, backup), of_switch[SwitchAbove(address)],
                                            of_machine[MachineOf(address)]};
    if (best && rank <= best_rank) continue;
    best = id;
    best_rank = rank;
  }
  return best;
}

}  // namespace slackline::scheduler

#include "worker/own_cores.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/log/logging.h"
#include "common/process/thread_cores.h"
#include "worker/machine/numa_nodes.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {
namespace {

constexpr uint32_t kSeatsMax = 65536;

struct Seat {
  size_t number = 0;
  uint32_t workers = 1;
};

std::optional<Seat> SeatOf(const job::Job& job, const PlaceOnMachine& place) {
  const auto groups = static_cast<uint32_t>(job.worker().groups_size());
  if (place.container_cpus > 0) return Seat{};
  if (place.seat.empty()) return Seat{place.group, std::max(1u, groups)};
  const std::vector<std::string> parts = absl::StrSplit(place.seat, '/');
  Seat seat;
  const bool numbers =
      parts.size() == 2 && absl::SimpleAtoi(parts[0], &seat.number) && absl::SimpleAtoi(parts[1], &seat.workers);
  if (!numbers || seat.number >= seat.workers || seat.workers > kSeatsMax) return std::nullopt;
  return seat;
}

// A container that sees more cores than it may use at a time shares them with containers that it does not know of.
std::string WhyNoneIsOwn(const CoreShare& share, uint32_t cpus, size_t seen) {
  if (cpus == 0 || seen <= cpus || share.wish.kind == CoreWish::Kind::kNone) return "";
  return absl::StrCat(share.key, ": nothing is bound: this container may use ", cpus,
                      " processor(s) at a time, and sees ", seen,
                      ", which it shares with others; kubelet gives it cores of its own with cpuManagerPolicy: "
                      "static, and whole processors as requests and limits");
}

}  // namespace

absl::StatusOr<CorePlan> TakeCores(const job::Job& job, const PlaceOnMachine& place) {
  const std::optional<Seat> seat = SeatOf(job, place);
  if (!seat) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seat: found '", place.seat, "'; allowed is NUMBER/WORKERS, such as 0/2 for the first of two"));
  }
  const std::vector<NumaNode> nodes = ReadNumaNodes(place.sys);
  std::vector<std::vector<uint32_t>> node_cores;
  for (const NumaNode& node : nodes) node_cores.push_back(node.cores);
  MachineShape machine = {
      .workers = seat->workers, .first = place.container_cpus > 0 ? place.group : 0, .gpus = place.gpus};
  // Workers without groups may see different GPUs each, of which the others do not know.
  const bool same_gpus = seat->workers == 1 || job.worker().groups_size() > 0;
  if (same_gpus && place.gpu_addresses.size() == place.gpus) {
    machine.gpu_nodes = NodesOfGpus(place.sys, place.gpu_addresses, nodes);
  }
  const std::vector<uint32_t> seen = ThreadCores();
  const std::vector<CoreShare> shares = CoreShares(job, machine);
  if (const std::string why = WhyNoneIsOwn(shares[seat->number], place.container_cpus, seen.size()); !why.empty()) {
    log::Warning(why);
    return CorePlan{};
  }
  auto plan = PlanCores(seen, shares, seat->number, node_cores);
  if (!plan.ok()) return plan;
  if (!plan->note.empty()) log::Warning(plan->note);
  if (absl::Status bound = BindThread(plan->others); !bound.ok()) return bound;
  if (plan->node) {
    const absl::Status preferred = PreferMemoryOf(nodes[*plan->node].number);
    if (!preferred.ok()) log::Warning(preferred.message());
  }
  if (!plan->compute.empty()) {
    const std::string node = plan->node ? absl::StrCat(" of NUMA node ", nodes[*plan->node].number) : "";
    log::Info("computes on cores ", CoresText(plan->compute), node, "; other threads are on ", CoresText(plan->others));
  }
  return plan;
}

}  // namespace slackline::worker

#include "worker/machine/core_plan.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::worker {
namespace {

constexpr size_t kOthersPart = 8;

// Deals out cores to the workers of a machine.
class Dealer {
 public:
  Dealer(absl::Span<const uint32_t> cores, absl::Span<const CoreShare> workers,
         absl::Span<const std::vector<uint32_t>> nodes)
      : cores_(cores), workers_(workers), nodes_(nodes), left_(cores.begin(), cores.end()), dealt_(workers.size()) {}

  absl::Status Lists() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].wish.kind != CoreWish::Kind::kList) continue;
      for (const uint32_t core : workers_[i].wish.cores) {
        if (!absl::c_binary_search(cores_, core)) {
          return Refused(i, absl::StrCat("core ", core),
                         absl::StrCat("those that this process may use: ", CoresText(cores_)));
        }
        if (std::erase(left_, core) == 0) {
          return Refused(i, absl::StrCat("core ", core, " for two workers of this machine"),
                         "each core for one of them: a number, auto, or cores of each of worker.groups");
        }
        dealt_[i].push_back(core);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Counts() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].wish.kind != CoreWish::Kind::kCount) continue;
      const uint32_t count = workers_[i].wish.count;
      if (count > left_.size()) {
        return Refused(i, absl::StrCat(count, " cores for worker ", i + 1, " of ", workers_.size(), " on this machine"),
                       absl::StrCat("at most what is left of its ", cores_.size(), ", which is ", left_.size()));
      }
      Take(i, count);
    }
    return absl::OkStatus();
  }

  // False where there are fewer than one for each device and one for the others.
  bool Autos() {
    size_t cpus = 0, gpus = 0;
    for (const CoreShare& worker : workers_) {
      if (worker.wish.kind == CoreWish::Kind::kAuto) (worker.gpus ? gpus : cpus) += worker.devices;
    }
    if (cpus + gpus == 0) return true;
    const size_t others = std::max<size_t>(1, cores_.size() / kOthersPart);
    const size_t kept = std::min(others, left_.size());
    if (left_.size() - kept < cpus + gpus) return false;
    const size_t each = cpus > 0 ? (left_.size() - kept - gpus) / cpus : 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].wish.kind != CoreWish::Kind::kAuto) continue;
      Take(i, workers_[i].devices * (workers_[i].gpus ? 1 : each));
    }
    return true;
  }

  const std::vector<uint32_t>& dealt(size_t worker) const { return dealt_[worker]; }
  const std::vector<uint32_t>& left() const { return left_; }

 private:
  // Requires: so many are left.
  void Take(size_t worker, size_t count) {
    std::vector<uint32_t>& taken = dealt_[worker];
    const auto take_from = [&](absl::Span<const uint32_t> of, size_t most) {
      for (const uint32_t core : of) {
        if (most == 0 || taken.size() == count) return;
        if (std::erase(left_, core) == 0) continue;
        taken.push_back(core);
        --most;
      }
    };
    if (nodes_.size() > 1) {
      // One near each GPU in turns, as often as there are any.
      for (size_t before = count; before != taken.size() && taken.size() < count;) {
        before = taken.size();
        for (const size_t node : workers_[worker].near) take_from(nodes_[node], 1);
      }
      if (const auto node = NodeFor(count - taken.size()); node) take_from(nodes_[*node], count);
    }
    take_from(std::vector<uint32_t>(left_), count);
    absl::c_sort(taken);
  }

  // The one with the fewest cores left that are enough: larger ones are kept for who needs them.
  std::optional<size_t> NodeFor(size_t count) const {
    std::optional<size_t> best;
    size_t fewest = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto left = static_cast<size_t>(
          absl::c_count_if(nodes_[i], [&](uint32_t core) { return absl::c_binary_search(left_, core); }));
      if (left < count || (best && left >= fewest)) continue;
      best = i;
      fewest = left;
    }
    return best;
  }

  absl::Status Refused(size_t worker, const std::string& found, const std::string& allowed) const {
    return absl::InvalidArgumentError(absl::StrCat(workers_[worker].key, ": found ", found, "; allowed is ", allowed));
  }

  const absl::Span<const uint32_t> cores_;
  const absl::Span<const CoreShare> workers_;
  const absl::Span<const std::vector<uint32_t>> nodes_;
  std::vector<uint32_t> left_;
  std::vector<std::vector<uint32_t>> dealt_;
};

std::optional<size_t> NodeOf(absl::Span<const uint32_t> cores, absl::Span<const std::vector<uint32_t>> nodes) {
  for (size_t i = 0; nodes.size() > 1 && !cores.empty() && i < nodes.size(); ++i) {
    if (absl::c_all_of(cores, [&](uint32_t core) { return absl::c_binary_search(nodes[i], core); })) return i;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<CorePlan> PlanCores(absl::Span<const uint32_t> cores, absl::Span<const CoreShare> workers, size_t self,
                                   absl::Span<const std::vector<uint32_t>> nodes) {
  SLACKLINE_CHECK(self < workers.size());
  CorePlan plan;
  if (absl::c_all_of(workers, [](const CoreShare& worker) { return worker.wish.kind == CoreWish::Kind::kNone; }) ||
      cores.empty()) {
    return plan;
  }
  Dealer dealer(cores, workers, nodes);
  if (absl::Status lists = dealer.Lists(); !lists.ok()) return lists;
  if (absl::Status counts = dealer.Counts(); !counts.ok()) return counts;
  if (!dealer.Autos() && workers[self].wish.kind == CoreWish::Kind::kAuto) {
    plan.note = absl::StrCat(workers[self].key, ": auto binds nothing here, where ", dealer.left().size(), " of ",
                             cores.size(), " cores are left: too few for one a device and one for other threads");
    return plan;
  }
  plan.compute = dealer.dealt(self);
  plan.node = NodeOf(plan.compute, nodes);
  plan.others = dealer.left();
  if (plan.others.empty()) {
    plan.others.assign(cores.begin(), cores.end());
    plan.note = absl::StrCat("worker.cores leaves none of ", cores.size(),
                             " cores to the exchange with servers, which shares those that compute");
  }
  return plan;
}

}  // namespace slackline::worker

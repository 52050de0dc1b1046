#include "tests/sim/step_rules.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace slackline::sim {
namespace {

std::string BrokenOfAll(const Step& step) {
  double weights = 0;
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const ps::ApplyAction::Part& part = step.apply.parts[i];
    weights += part.weight;
    if (part.base != step.parts[i].base) {
      return absl::StrCat("says base ", ToString(part.base), " of ", Show(part.push), ", which is from ",
                          ToString(step.parts[i].base));
    }
    const uint64_t staleness = step.apply.version.number - 1 - step.parts[i].base.number;
    if (step.parts[i].base.lineage == step.apply.version.lineage && part.staleness != staleness) {
      return absl::StrCat("says staleness ", part.staleness, " of ", Show(part.push), ", which has ", staleness);
    }
  }
  // Each push is one batch.
  if (step.apply.batches != static_cast<double>(step.parts.size())) {
    return absl::StrCat("counts ", step.apply.batches, " batches in ", step.parts.size(), " pushes");
  }
  if (weights < 0.999999 || weights > 1.000001) return absl::StrCat("has weights that sum to ", weights);
  return "";
}

std::string BrokenOfBsp(const Step& step) {
  for (const StepPart& part : step.parts) {
    if (part.push.sequence != step.parts.front().push.sequence) return "mixes clocks";
  }
  return "";
}

std::string BrokenOfSoftsync(const ps::EngineConfig& config, const Step& step) {
  std::deque<ps::PushRef> next = step.accepted;
  if (step.arriving) next.push_back(*step.arriving);
  for (size_t i = 0; i < step.parts.size(); ++i) {
    if (i >= next.size() || step.parts[i].push != next[i]) {
      return absl::StrCat("has ", Show(step.parts[i].push), " where it should have ",
                          i < next.size() ? Show(next[i]) : "nothing");
    }
  }
  const size_t size =
      step.live_workers == 0 ? step.accepted.size() : std::max<size_t>(1, step.live_workers / config.softsync_n);
  if (step.parts.size() == size) return "";
  return absl::StrCat("has ", step.parts.size(), " pushes instead of ", size);
}

size_t PushesNeeded(const ps::EngineConfig& config, const Step& step) {
  size_t needed = 1;
  while (static_cast<double>(needed) < config.quorum * static_cast<double>(step.live_workers) - 1e-9) ++needed;
  return needed;
}

// Waiting means more pushes per second, of which missing ones count three times. So a step takes at most as many times
// longer than with its quorum alone as all live workers, counted so, are more than the quorum, whoever comes or does
// not. A step that a change of the members completes has the time of the event before, at most a tick earlier.
std::string BrokenOfGrace(const ps::EngineConfig& config, const Step& step) {
  if (!ReachesQuorum(config, step) || !step.same_members) return "";
  std::vector<absl::Time> staged;
  for (const StepPart& part : step.parts) staged.push_back(part.staged_at);
  std::sort(staged.begin(), staged.end());
  const size_t needed = PushesNeeded(config, step);
  const absl::Time reached = staged[needed - 1];
  const bool graced = config.grace && step.before != absl::InfinitePast();
  const double longer = 1 + 3 * (static_cast<double>(step.live_workers) / static_cast<double>(needed) - 1);
  const absl::Time latest = graced ? step.before + longer * (reached - step.before + kTick) + kTick : reached;
  if (step.now <= latest) return "";
  return absl::StrCat("has had its quorum for ", absl::FormatDuration(step.now - reached));
}

std::string BrokenOfQuorum(const ps::EngineConfig& config, const Step& step) {
  const Version before{step.apply.version.lineage, step.apply.version.number - 1};
  std::set<ps::Sender> senders;
  for (const StepPart& part : step.parts) {
    if (part.base != before) {
      return absl::StrCat("takes ", Show(part.push), " computed from ", ToString(part.base), ", it was at ",
                          ToString(before));
    }
    if (!senders.insert(part.push.sender).second)
      return absl::StrCat("has two pushes of one worker: ", Show(part.push));
  }
  if (std::string broken = BrokenOfGrace(config, step); !broken.empty()) return broken;
  if (ReachesQuorum(config, step) || Overdue(config, step)) return "";
  return absl::StrCat("has ", step.parts.size(), " pushes of ", step.live_workers, " live workers");
}

}  // namespace

bool ReachesQuorum(const ps::EngineConfig& config, const Step& step) {
  return step.parts.size() >= PushesNeeded(config, step);
}

bool HasMoreThanItsQuorum(const ps::EngineConfig& config, const Step& step) {
  return step.parts.size() > PushesNeeded(config, step);
}

std::string Show(const ps::PushRef& push) {
  return absl::StrCat("worker ", push.sender.worker.value(), ".", push.sender.incarnation.value(), " push ",
                      push.sequence.value());
}

bool Overdue(const ps::EngineConfig& config, const Step& step) {
  absl::Time first = absl::InfiniteFuture();
  for (const StepPart& part : step.parts) first = std::min(first, part.staged_at);
  if (config.quorum_deadline > absl::ZeroDuration() && step.now >= first + config.quorum_deadline) return true;
  return step.others_discarded && step.now >= first + config.standstill_after;
}

std::string BrokenRule(const ps::EngineConfig& config, const Step& step) {
  if (std::string broken = BrokenOfAll(step); !broken.empty()) return broken;
  switch (config.mode) {
    case ps::Mode::kAsync:
    case ps::Mode::kSsp:
      return step.parts.size() == 1 ? "" : "has several pushes";
    case ps::Mode::kBsp:
      return BrokenOfBsp(step);
    case ps::Mode::kSoftsync:
      return BrokenOfSoftsync(config, step);
    case ps::Mode::kQuorum:
      return BrokenOfQuorum(config, step);
  }
  return "";
}

}  // namespace slackline::sim

#include "tests/sim/faulty_engine.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace slackline::sim {

absl::Status FaultyEngine::SetMembers(const ps::MemberSet& set, ps::Actions& actions) {
  if (bugs_.drop_accepted) {
    // The engine goes on with the accepted pushes; only their bytes are released.
    const std::vector<ps::Sender> out = PutOutBy(set);
    for (const ps::WorkerClock& worker : Snapshot().workers) {
      if (!absl::c_linear_search(out, worker.sender)) continue;
      // A snapshot names the clock before the first accepted push that is in no step yet.
      const Clock64 last = *clock(worker.sender.worker);
      for (Sequence s = worker.clock.Next(); s <= last; s = s.Next())
        actions.push_back(ps::DropAction{{worker.sender, s}});
    }
  }
  return Engine::SetMembers(set, actions);
}

absl::Status FaultyEngine::Hello(const ps::HelloEvent& hello, ps::Actions& actions) {
  ps::HelloEvent told = hello;
  if (bugs_.no_fast_forward && IsMember(hello.sender)) {
    const Clock64 known = *clock(hello.sender.worker);
    told.first_clock = std::min(told.first_clock, known);
    told.last_answered = std::min(told.last_answered, known);
  }
  return Engine::Hello(told, actions);
}

void FaultyEngine::Push(const ps::PushEvent& push, ps::Actions& actions) {
  const Version now = version();
  ps::PushEvent told = push;
  if (bugs_.ignore_lineage && push.base.lineage < now.lineage) {
    told.base = {now.lineage, std::min(push.base.number, now.number)};
  }
  if (bugs_.take_late && quorum_ && push.base.lineage == now.lineage) {
    told.base.number = std::max(push.base.number, now.number);
  }
  if (told.base != push.base) bases_[{push.sender, push.sequence}] = push.base;
  Engine::Push(told, actions);
}

void FaultyEngine::Tick(absl::Time now, ps::Actions& actions) {
  if (!bugs_.endless_grace) Engine::Tick(now, actions);
}

ps::ApplyAction FaultyEngine::AsPushed(ps::ApplyAction apply) const {
  for (ps::ApplyAction::Part& part : apply.parts) {
    const auto base = bases_.find(part.push);
    if (base == bases_.end()) continue;
    part.base = base->second;
    const bool counts = part.base.lineage == apply.version.lineage;
    part.staleness = counts ? apply.version.number - 1 - part.base.number : 0;
  }
  return apply;
}

}  // namespace slackline::sim

// Repeats: pushes that were refused for now, and must come again before those behind them.
#pragma once

#include <map>
#include <optional>

#include "common/base/ids.h"
#include "ps/consistency/engine.h"
#include "ps/host/peer.h"

namespace slackline::ps {

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the engine, and peers until Forget().
class Repeats {
 public:
  explicit Repeats(const Engine& engine) : engine_(engine) {}

  // Records a push that is refused for now: the pushes behind it, which are on their way, must be repeated too.
  void Note(const Caller& caller, Sequence sequence) {
    // A push behind the first one is repeated with it.
    if (engine_.Admit(caller.sender, sequence) == Engine::Admission::kStage) first_[caller.peer] = sequence;
  }
  // Returns, for a push ahead of its turn, the push that must be repeated before it. Nullopt if the gap is the worker's
  // own.
  std::optional<Sequence> Before(const Caller& caller, Sequence sequence) const {
    const auto found = first_.find(caller.peer);
    if (found == first_.end() || sequence <= found->second) return std::nullopt;
    if (engine_.Admit(caller.sender, found->second) != Engine::Admission::kStage) return std::nullopt;
    return found->second;
  }
  void Forget(const Peer* peer) { first_.erase(peer); }

 private:
  const Engine& engine_;
  std::map<const Peer*, Sequence> first_;  // first push of each peer that was refused for now
};

}  // namespace slackline::ps

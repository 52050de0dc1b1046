// An engine with planted bugs, which random histories must find.
#pragma once

#include <map>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps/consistency/engine.h"

namespace slackline::sim {

// Bugs to plant.
struct Bugs {
  bool ignore_lineage = false;   // takes pushes that were computed before a restore
  bool no_fast_forward = false;  // does not advance to the clock that a worker names
  bool drop_accepted = false;    // forgets accepted pushes of a worker that leaves
  bool take_late = false;        // takes late pushes into a step of a quorum
  bool endless_grace = false;    // gets no ticks, so that only pushes end the grace of a quorum
};

// Plants bugs from outside of the engine: changes events on their way in, and actions on their way out. Without bugs it
// is the engine.
//
// Thread-safety: none.
class FaultyEngine : public ps::Engine {
 public:
  FaultyEngine(const ps::EngineConfig& config, const Bugs& bugs)
      : Engine(config), bugs_(bugs), quorum_(config.mode == ps::Mode::kQuorum) {}
  FaultyEngine(const ps::EngineConfig& config, const ps::EngineState& restored, const Bugs& bugs)
      : Engine(config, restored), bugs_(bugs), quorum_(config.mode == ps::Mode::kQuorum) {}

  absl::Status SetMembers(const ps::MemberSet& set, ps::Actions& actions);
  absl::Status Hello(const ps::HelloEvent& hello, ps::Actions& actions);
  void Push(const ps::PushEvent& push, ps::Actions& actions);
  void Tick(absl::Time now, ps::Actions& actions);
  // Returns the step with the bases that its pushes came with; Push() may have passed on others.
  ps::ApplyAction AsPushed(ps::ApplyAction apply) const;

 private:
  const Bugs bugs_;
  const bool quorum_;
  std::map<ps::PushRef, Version> bases_;  // bases of pushes that were passed on with another
};

}  // namespace slackline::sim

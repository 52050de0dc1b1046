// PartPositions keeps the positions in parts of a stream that the pushes of each worker name, so that the scheduler
// learns how far a worker got that died without a word.
//
// The answered pushes of a worker are those up to its clock (engine.h). Positions are not in snapshots, and do not go
// to backups: after a restart or a promotion they are unknown until the worker pushes again.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "parameter_server.pb.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

// Thread-safety: none.
class PartPositions {
 public:
  using Positions = std::vector<wire::PartPosition>;
  // Largest number of positions in a push.
  static constexpr int kMax = 256;

  //   kInvalidArgument  too many positions
  static absl::Status Check(const wire::DataProgress& data);

  // Notes the positions of a push that is about to be staged.
  void Pushed(const PushRef& push, const wire::DataProgress& data, Clock64 clock);

  // Positions of workers that a set leaves out, as of their clocks.
  using Gone = std::map<Sender, Positions>;
  // Returns the positions of these workers. Requires: they are members of `engine` still.
  Gone Of(absl::Span<const Sender> workers, const Engine& engine) const;
  // Notes that the set of `epoch` has left out these workers.
  void Installed(Epoch epoch, const Gone& gone);

  // Returns workers that one of the last 16 sets has left out.
  Gone Fenced() const;

 private:
  static constexpr uint64_t kEpochsKept = 16;

  std::map<Sender, std::deque<std::pair<Sequence, Positions>>> pushed_;  // oldest first
  std::map<Sender, std::pair<Epoch, Positions>> fenced_;
};

}  // namespace slackline::ps

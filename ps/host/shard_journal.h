// Reports from a shard to a second copy of it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ps/consistency/events.h"
#include "ps/host/staging.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Step that was taken, with all that is needed to take it again on the same state, to the same bits.
struct JournalStep {
  Version version;  // version after the step
  StepArguments arguments;
  // Only gradient of the step, as it arrived, ...
  std::shared_ptr<StagedPush> push;
  double weight = 1;
  double gradient_norm = 0;
  // ... or, for several gradients or a compensated one, the clipped mean that the step used.
  std::shared_ptr<const std::vector<float>> mean;
  // Answers to the pushes of the step. Without them, a copy that has the step would take a repeated push for a new one.
  std::vector<std::pair<Sender, Answer>> answers;
};

// Receiver of a shard's reports.
//
// Thread-safety: none; the sequencer calls it.
class ShardJournal {
 public:
  using Tell = std::function<void()>;

  virtual ~ShardJournal() = default;

  // Returns true if the shard's steps are wanted.
  virtual bool Follows(ShardId shard) const = 0;
  // Reports a step, before or after it is taken here.
  virtual void Stepped(ShardId shard, JournalStep step) = 0;
  // Reports a final answer. It may be reported again, and a reported step may contain it already. `tell` runs when the
  // answer and all reports before it are kept, now or later. It never runs if another server has taken over.
  virtual void Answered(ShardId shard, const Sender& sender, const Answer& answer, Tell tell) = 0;
  // Reports that a worker has become a member or has opened a stream, and is at this clock.
  virtual void Joined(ShardId shard, const Sender& sender, Clock64 clock) = 0;
  // Reports that a worker is no longer a member.
  virtual void Left(ShardId shard, const Sender& sender) = 0;
  // Returns the number of answers to this worker that wait to be given.
  virtual size_t Untold(ShardId shard, const Sender& sender) const = 0;
  // Returns true if no other server can have taken over, so that pulls may be served.
  virtual bool MayServe() const = 0;
};

}  // namespace slackline::ps

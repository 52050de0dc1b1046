// What a shard tells whoever keeps a second copy of it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ps/consistency/events.h"
#include "ps/service/staging.h"
#include "ps/shard_state.h"

namespace slackline::ps {

// A step that was taken, with all that is needed to take it again on the same state, to the same bits.
struct RecordedStep {
  Version version;  // after it
  StepArguments arguments;
  // The one gradient that it was taken with, as it came, ...
  std::shared_ptr<StagedPush> push;
  double weight = 1;
  double gradient_norm = 0;
  // ... or the mean of several, clipped.
  std::shared_ptr<const std::vector<float>> mean;
  // To the pushes that are in it: a copy that had the step without them would take the push for new.
  std::vector<std::pair<Sender, Answer>> answers;
};

// Thread-safety: none; the sequencer calls it.
class ShardJournal {
 public:
  using Tell = std::function<void()>;

  virtual ~ShardJournal() = default;

  // Whether the shard's steps are wanted.
  virtual bool Follows(ShardId shard) const = 0;
  // Before it is taken here, or after.
  virtual void Stepped(ShardId shard, RecordedStep step) = 0;
  // A final answer, maybe once more, and maybe one that a step had with it. `tell` runs when it and all that came
  // before it is kept, now or later; never where somebody else has taken over.
  virtual void Answered(ShardId shard, const Sender& sender, const Answer& answer, Tell tell) = 0;
  // A worker has become a member or has opened a stream, and is at this clock.
  virtual void Joined(ShardId shard, const Sender& sender, Clock64 clock) = 0;
  // A worker is no member any more.
  virtual void Left(ShardId shard, const Sender& sender) = 0;
  // Answers of this worker that wait to be told.
  virtual size_t Untold(ShardId shard, const Sender& sender) const = 0;
  // Nobody can have taken over: pulls may be served.
  virtual bool MayServe() const = 0;
};

}  // namespace slackline::ps

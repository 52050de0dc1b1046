// What a worker knows of its exchange with each shard: which pushes are unanswered, what to say again after a broken
// stream, when a step is complete. Pure: the client feeds it frames and sends what it asks for.
//
// A step: Push(sequence) on all shards, an answer from each, then a pull at that clock from each. A step is finished
// when every shard has answered and served it. Several steps may be in flight. What a broken stream has swallowed is
// said again: the same bytes under the same sequence (the shard answers again, or takes them now), and the pull.
//
// Thread-safety: none; the client's I/O thread owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace slackline::worker {

class Session {
 public:
  enum class Outcome { kApplied, kDiscarded };

  // What is to be sent to a shard now, in this order: the push, then the pull.
  struct Send {
    ShardId shard;
    std::optional<Sequence> push;  // the sub-push with this sequence, base = `base`
    Version base;
    std::optional<PullId> pull;  // a pull at `clock`; `known` is what the worker has
    Clock64 clock;
    std::optional<Version> known;
  };

  using Clocks = absl::InlinedVector<Clock64, 2>;

  // Shards are numbered 0 to shards - 1; sequences begin at first_clock + 1.
  Session(size_t shards, Clock64 first_clock);

  // Begins a pull without a push: the first one of an incarnation, an evaluation.
  // Requires: idle().
  std::vector<Send> BeginPull();
  // Begins the next step: sub-push sequence() + pull on every shard. Others may be in flight; how many is for the
  // caller to bound.
  // Requires: no plain pull is in progress, and weights were taken before.
  std::vector<Send> BeginStep();

  // For the Hello of a new stream to the server of these shards.
  Sequence last_answered(ShardId shard) const { return shards_[shard.value()].answered; }
  // The stream to the shard's server is open (again): what must be said (again), oldest first.
  std::vector<Send> Connected(ShardId shard);
  void Disconnected(ShardId shard);

  // Returns false when the answer is a repetition of one already had.
  //   kInternal  the shard answered a push that was never sent
  absl::StatusOr<bool> Answered(ShardId shard, Sequence sequence, Outcome outcome);
  // All of one version of the shard has arrived (or what the worker has is still current). Pulls asked for before it
  // are served by it, too.
  // Returns the clocks of the pulls that it serves, its own last; none when it was not awaited, so that its bytes mean
  // nothing.
  Clocks Pulled(ShardId shard, PullId id, Version version);
  // The clock of this pull; nullopt when it is not awaited, so that its bytes mean nothing.
  std::optional<Clock64> Awaits(ShardId shard, PullId id) const;
  // Gradients are computed from what the pull at this clock brought.
  void Take(Clock64 clock);

  // Nothing is unanswered and nothing is awaited.
  bool idle() const { return pulls_awaited_ == 0 && finished_ == sequence_; }
  // The largest sequence such that every shard has answered and served it and all before it.
  Sequence finished() const { return finished_; }
  // Pushes that every shard has answered.
  Clock64 clock() const { return clock_; }
  // Sequence of the last push begun.
  Sequence sequence() const { return sequence_; }
  Clock64 first_clock() const { return first_clock_; }
  // What was pulled last.
  std::optional<Version> version(ShardId shard) const { return shards_[shard.value()].version; }
  uint64_t discarded() const { return discarded_; }
  uint64_t applied() const { return applied_; }
  // The shards that have not answered or served something yet.
  std::vector<ShardId> Awaited() const;

 private:
  struct Asked {
    PullId id;
    Clock64 clock;
  };
  struct Served {
    Clock64 clock;
    Version version;
  };
  struct Shard {
    bool connected = false;
    Sequence answered;
    Sequence pulled;                 // clock of the last pull that was served
    std::optional<Version> version;  // what was pulled last; absent while that is a mixture or nothing
    std::deque<Served> served;       // not taken yet, oldest first
    Version taken;                   // what gradients are computed from
    std::deque<Version> bases;       // of the pushes answered + 1, answered + 2, ...
    std::deque<Asked> asked;         // awaited, oldest first
  };

  std::vector<Send> Ask(bool push);
  Send ComposePull(ShardId id, const Asked& asked) const;
  // A shard that was done with `before` is done with `after` now.
  void Progress(Sequence before, Sequence after);
  // Answered and served up to this sequence.
  static Sequence Done(const Shard& shard) { return std::min(shard.answered, shard.pulled); }

  std::vector<Shard> shards_;
  const Clock64 first_clock_;
  Clock64 clock_;
  Sequence sequence_;
  Sequence finished_;
  PullId last_pull_;
  size_t pulls_awaited_ = 0;  // shards with an unserved pull
  size_t behind_ = 0;         // shards that are not done with finished_ + 1
  size_t unanswered_ = 0;     // shards that have not answered clock_ + 1
  bool has_taken_ = false;
  uint64_t discarded_ = 0;
  uint64_t applied_ = 0;
};

}  // namespace slackline::worker

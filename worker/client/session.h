// Session: a worker's protocol state with each shard. It knows which pushes are unanswered, what to repeat after a
// broken stream, and when a step is complete. Pure: the client feeds it frames and sends what it asks for.
//
// A step consists of Push(sequence) to all shards, an answer from each, and then a pull at that clock from each. A step
// is finished when every shard has answered and served it. Several steps may be in flight. Messages lost in a broken
// stream are repeated: the same bytes under the same sequence, and the pull. The shard then answers again, or accepts
// the push now.
//
// Thread-safety: none; the client's I/O thread owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace slackline::worker {

class Session {
 public:
  enum class Outcome { kApplied, kDiscarded };

  // Messages to send to a shard now, in this order: the push, then the pull.
  struct Send {
    ShardId shard;
    std::optional<Sequence> push;  // the sub-push with this sequence, computed from weights of version `base`
    Version base;
    std::optional<PullId> pull;  // a pull at `clock`; `known` is the version that the worker has
    Clock64 clock;
    std::optional<Version> known;
  };

  using Clocks = absl::InlinedVector<Clock64, 2>;

  // Creates a session with shards 0 to shards - 1. Sequences begin at first_clock + 1.
  Session(size_t shards, Clock64 first_clock);

  // Begins a pull without a push, for example the first pull of an incarnation, or one for an evaluation.
  // Requires: idle().
  std::vector<Send> BeginPull();
  // Begins the next step: sub-push sequence() and a pull on every shard. Other steps may be in flight; the caller
  // bounds their number.
  // Requires: no plain pull is in progress, and Take() was called before.
  std::vector<Send> BeginStep();

  // Returns the last answered sequence, for the Hello of a new stream to the shard's server.
  Sequence last_answered(ShardId shard) const { return shards_[shard.value()].answered; }
  // Reports that the stream to the shard's server is open. Returns the messages to send or repeat, oldest first.
  std::vector<Send> Connected(ShardId shard);
  void Disconnected(ShardId shard);

  // Records an answer. Returns false if it repeats an earlier one.
  //   kInternal  the shard answered a push that was never sent, or skipped one
  absl::StatusOr<bool> Answered(ShardId shard, Sequence sequence, Outcome outcome);
  // Reports that all of one version of the shard has arrived, or that the version that the worker has is still current.
  // This also serves all pulls that were requested earlier. Returns the clocks of the served pulls, that of pull `id`
  // last. Returns none if the pull was not awaited; ignore its bytes then.
  Clocks Pulled(ShardId shard, PullId id, Version version);
  // Returns the clock of this pull, or nullopt if it is not awaited; ignore its bytes then.
  std::optional<Clock64> Awaits(ShardId shard, PullId id) const;
  // Declares that the next gradients are computed from the weights that the pull at this clock brought.
  void Take(Clock64 clock);

  // True if no push is unanswered and no pull is awaited.
  bool idle() const { return pulls_awaited_ == 0 && finished_ == sequence_; }
  // Largest sequence such that every shard has answered and served it and all before it.
  Sequence finished() const { return finished_; }
  // Number of pushes that every shard has answered, counted from first_clock.
  Clock64 clock() const { return clock_; }
  // Sequence of the last push begun.
  Sequence sequence() const { return sequence_; }
  Clock64 first_clock() const { return first_clock_; }
  // Version of the shard that was pulled last.
  std::optional<Version> version(ShardId shard) const { return shards_[shard.value()].version; }
  uint64_t discarded() const { return discarded_; }
  uint64_t applied() const { return applied_; }
  // Returns the shards that have something left to answer or to serve.
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
    std::optional<Version> version;  // version pulled last; absent while the weights are a mixture or missing
    std::vector<Served> served;      // versions that Take() has not reached yet, oldest first
    Version taken;                   // version from which gradients are computed
    std::vector<Version> bases;      // base versions of the pushes answered + 1, answered + 2, ...
    std::vector<Asked> asked;        // awaited pulls, oldest first
  };

  std::vector<Send> Ask(bool push);
  Send ComposePull(ShardId id, const Asked& asked) const;
  // Updates `finished_` after a shard's progress from `before` to `after`, both as Done() returns them.
  void Progress(Sequence before, Sequence after);
  // Returns the sequence up to which the shard has answered and served everything.
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

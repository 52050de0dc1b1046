// What a worker knows of its exchange with each shard: which push is unanswered, what to say again after a broken
// stream, when a step is complete. Pure: the client feeds it frames and sends what it asks for.
//
// A step: Push(sequence) on all shards, an answer from each, then a pull at that clock from each. A step is over
// when every shard has answered and served. What a broken stream has swallowed is said again: the same bytes under
// the same sequence (the shard answers again, or takes them now), and the pull.
//
// Thread-safety: none; the client's I/O thread owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

  // Shards are numbered 0 to shards - 1; sequences begin at first_clock + 1.
  Session(size_t shards, Clock64 first_clock);

  // Begins a step without a push: the first pull of an incarnation, an evaluation.
  // Requires: idle().
  std::vector<Send> BeginPull();
  // Begins the next step: sub-push sequence() + pull on every shard.
  // Requires: idle().
  std::vector<Send> BeginStep();

  // For the Hello of a new stream to the server of these shards.
  Sequence last_answered(ShardId shard) const { return shards_[shard.value()].answered; }
  // The stream to the shard's server is open (again): what must be said (again).
  std::optional<Send> Connected(ShardId shard);
  void Disconnected(ShardId shard);

  // Returns false when the answer is a repetition of one already had.
  //   kInternal  the shard answered a push that was never sent
  absl::StatusOr<bool> Answered(ShardId shard, Sequence sequence, Outcome outcome);
  // All of one version of the shard has arrived (or `unchanged`: what the worker has is still current).
  // Returns false when the pull was not the awaited one, so that its bytes mean nothing.
  bool Pulled(ShardId shard, PullId id, Version version);
  // A chunk of this pull may be written to the parameters: it is the one awaited.
  bool Awaits(ShardId shard, PullId id) const;

  // Nothing is unanswered and nothing is awaited.
  bool idle() const { return waiting_ == 0; }
  // Pushes that every shard has answered.
  Clock64 clock() const { return clock_; }
  // Sequence of the push in flight, or of the last one.
  Sequence sequence() const { return sequence_; }
  Clock64 first_clock() const { return first_clock_; }
  std::optional<Version> version(ShardId shard) const { return shards_[shard.value()].version; }
  uint64_t discarded() const { return discarded_; }
  uint64_t applied() const { return applied_; }
  // The shards that have not answered or served yet.
  std::vector<ShardId> Awaited() const;

 private:
  struct Shard {
    bool connected = false;
    Sequence answered;
    std::optional<Version> version;  // what the parameters hold; absent while they hold a mixture or nothing
    Version base;                    // version that the push in flight was computed from
    std::optional<PullId> pull;      // awaited
  };

  Send Compose(ShardId id);
  void Progress();

  std::vector<Shard> shards_;
  const Clock64 first_clock_;
  Clock64 clock_;
  Sequence sequence_;
  PullId last_pull_;
  size_t waiting_ = 0;  // shards with an unanswered push or an unserved pull
  uint64_t discarded_ = 0;
  uint64_t applied_ = 0;
};

}  // namespace slackline::worker

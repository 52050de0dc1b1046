// What must be true of pushes, versions and data, watched from outside: by what the processes say to each other and by
// the weights that servers hold.
//
// Each push has a slot, an element that is its own in every shard, to which it adds its weight in the step that applies
// it; all pushes add to element 0, which therefore counts the steps of the shard. So the weights of a shard say which
// pushes are in them, and how often, and whether they are of one version.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/consistency/events.h"
#include "scheduler.pb.h"
#include "tests/world/events.h"
#include "tests/world/options.h"

namespace slackline::world {

// Elements of each shard.
inline constexpr uint64_t kShardElements = 384;
inline constexpr uint32_t kSlotsMax = kShardElements - 1;

// A worker's life in the job.
using ps::Sender;

class Ledger {
 public:
  using Violated = std::function<void(const std::string&)>;

  Ledger(const job::Job& job, uint32_t shards, Counts& counts, Violated violated)
      : job_(job), shards_(shards), counts_(counts), violated_(std::move(violated)) {}

  // --- What workers do ---

  // A push begins; returns its slot.
  uint32_t Begin(const Sender& sender, Sequence sequence);
  // It is sent to the shard (again), as computed from this version.
  void Sent(const Sender& sender, Sequence sequence, ShardId shard, const Version& base);
  // The worker has this answer, of a server's life.
  void Answered(const Sender& sender, const wire::PushAnswer& answer, LifeId server);
  // The server of these shards greets the worker; the shard says that so many pushes up to this one are lost.
  void Welcomed(const Sender& sender, ShardId shard, uint64_t lost, uint64_t lost_to, LifeId server);
  // The worker has weights that serve its pull at `clock`.
  void Pulled(const Sender& sender, ShardId shard, const Version& version, Clock64 clock,
              absl::Span<const float> weights);
  // A server has said its final word to the worker, whose life in the job ends by it.
  void Refused(const Sender& sender, const absl::Status& status);
  // The worker knows that it is live, and where it begins.
  void Live(const Sender& sender, Clock64 first_clock);

  // --- What servers do ---

  // Where a server's shard comes from: nowhere, a snapshot or the server that it has followed, or another server that
  // has given it up.
  enum class From { kNothing, kRestore, kMove };
  // A server's life has the shard, with these weights.
  void Installed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights, From from);
  // It has none any more.
  void Deserted(LifeId server) { members_.erase(server); }
  // After an event that may have changed it.
  void Changed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights);
  void Members(LifeId server, const std::set<Sender>& members);
  // It has refused that set.
  void MembersStay(LifeId server, const std::set<Sender>& members);
  const std::set<Sender>* MembersOf(LifeId server) const;
  // It answers a worker's pull at `clock` from these weights, in this moment.
  void Serves(LifeId server, ShardId shard, const Sender& sender, Clock64 clock, const Version& version,
              absl::Span<const float> weights);
  // It tells a worker this in this moment.
  void Answers(LifeId server, const Sender& sender, const wire::PushAnswer& answer);
  // The job is done, and this is what is left of the shard.
  void Final(LifeId server, ShardId shard, absl::Span<const float> weights, bool deserted);

  // --- What the scheduler does ---

  void Handed(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
              absl::Span<const LifeId> servers);
  // It has taken the worker's word for it.
  void RangeDone(const Sender& holder, uint64_t range);
  void JobDone();

  uint64_t progress() const { return progress_; }  // changes when anything moves on

 private:
  struct OfShard {
    std::optional<Version> base;
    bool answered = false;
    bool applied = false;
    Version answer;
    uint64_t turn = 0;  // of the life that answered
    bool lost = false;
  };
  struct Push {
    Sender sender;
    Sequence sequence;
    std::vector<OfShard> shards;
  };
  struct Held {
    Version version;
    std::vector<float> weights;
  };
  struct Range {
    wire::RangeTask task;
    Sender holder;
    uint64_t scheduler_life = 0;
    bool done = false;
  };

  Push* Find(const Sender& sender, Sequence sequence);
  std::string Name(const Push& push) const;
  // Whether the weights are those of so many steps, each slot at most once.
  void CheckSteps(const std::string& what, const Version& version, absl::Span<const float> weights);
  void CheckStep(ShardId shard, const Held& before, const Version& version, absl::Span<const float> weights);
  void CheckFenced(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
                   absl::Span<const LifeId> servers);
  bool replicated() const { return job_.durability().mode() == job::Durability::REPLICATED; }
  // Whether the shard was this at some time under an earlier lineage, as far as it was looked at.
  bool WasOnce(ShardId shard, const Version& version, size_t hash, bool copied) const;
  // A copy that takes over has all that was answered.
  void CheckKept(ShardId shard, absl::Span<const float> weights);
  // Who takes a shard from another has all that was answered by that one, and all that it had from the beginning.
  // `turn`: that begins.
  void CheckMoved(ShardId shard, uint64_t turn, absl::Span<const float> weights);
  // For a turn that begins. One that was stopped when it was to get the shard, and then was replaced, gets it in a turn
  // that was over before.
  uint64_t NextTurn(ShardId shard, Lineage lineage);
  // In which turn a server's life got the shard: one that began earlier may be the later one.
  uint64_t TurnOf(LifeId server, ShardId shard) const;
  // The turn, up to `last`, in which a restore has lost this push, which an earlier one had; 0: none.
  uint64_t LostBy(ShardId shard, size_t slot, uint64_t had, uint64_t last) const;
  // Whether weights that may not lack this push have it, or it will never be in them.
  bool Settled(const Push& push, ShardId shard, const Version& version, absl::Span<const float> weights) const;

  const job::Job& job_;
  const uint32_t shards_;
  Counts& counts_;
  const Violated violated_;
  std::vector<Push> pushes_;  // by slot - 1
  std::map<Sender, std::map<Sequence, uint32_t>> slots_;
  std::map<Sender, Clock64> live_;  // where they began
  std::map<std::pair<LifeId, ShardId>, Held> held_;
  uint64_t last_turn_ = 0;
  std::map<std::pair<LifeId, ShardId>, uint64_t> turns_;
  // What each turn began with.
  struct Begun {
    Lineage lineage;
    std::vector<float> weights;
  };
  std::map<ShardId, std::map<uint64_t, Begun>> begun_;
  std::map<LifeId, std::set<Sender>> members_;
  // Who was put out of a server's set: a scheduler that has forgotten it puts it in again, at another clock.
  std::set<Sender> put_out_;
  // What each version was.
  std::map<ShardId, std::map<std::pair<uint32_t, uint64_t>, size_t>> history_;
  // The last turn that has served a pull.
  std::map<ShardId, uint64_t> served_;
  // The turns of servers that have greeted the worker for the shard.
  std::map<std::pair<Sender, ShardId>, std::set<uint64_t>> greeted_;
  std::map<uint64_t, Range> ranges_;
  uint64_t progress_ = 0;
};

}  // namespace slackline::world

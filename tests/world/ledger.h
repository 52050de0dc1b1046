// Checks what must be true of pushes, versions and data, from outside: by the messages of the processes and by the
// weights that servers hold.
//
// Each push has a slot: one element in every shard that only this push changes. The step that applies the push adds the
// push's weight to its slot. All pushes also add to element 0, which therefore counts the steps of the shard. So the
// weights of a shard show which pushes are in them, how often, and whether they are of one version.
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
#include "common/job/job_kinds.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/consistency/events.h"
#include "scheduler.pb.h"
#include "tests/world/events.h"
#include "tests/world/options.h"

namespace slackline::world {

// Number of elements of each shard.
inline constexpr uint64_t kShardElements = 384;
inline constexpr uint32_t kSlotsMax = kShardElements - 1;

// Life of a worker in the job.
using ps::Sender;

class Ledger {
 public:
  using Violated = std::function<void(const std::string&)>;

  Ledger(const job::Job& job, uint32_t shards, Counts& counts, Violated violated)
      : job_(job), shards_(shards), counts_(counts), violated_(std::move(violated)) {}

  // --- Workers ---

  // Notes that a push begins; returns its slot.
  uint32_t Begin(const Sender& sender, Sequence sequence);
  // Notes that the worker sends the push to the shard (again), as computed from this version.
  void Sent(const Sender& sender, Sequence sequence, ShardId shard, const Version& base);
  // Notes that the worker has this answer, of a server's life.
  void Answered(const Sender& sender, const wire::PushAnswer& answer, LifeId server);
  // Notes that the shard's server greets the worker and says that so many pushes, up to `lost_to`, are lost.
  void Welcomed(const Sender& sender, ShardId shard, uint64_t lost, uint64_t lost_to, LifeId server);
  // Notes that the worker has weights that serve its pull at `clock`.
  void Pulled(const Sender& sender, ShardId shard, const Version& version, Clock64 clock,
              absl::Span<const float> weights);
  // Notes that a server has refused the worker for good, which ends the worker's life in the job.
  void Refused(const Sender& sender, const absl::Status& status);
  // Notes that the worker knows that it is live, and where it begins.
  void Live(const Sender& sender, Clock64 first_clock);

  // --- Servers ---

  // Origin of a server's shard: none; a snapshot or the server that it has followed; another server that has given the
  // shard up.
  enum class From { kNothing, kRestore, kMove };
  // Notes that a server's life has the shard, with these weights.
  void Installed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights, From from);
  // Notes that the server has no shards any more.
  void Deserted(LifeId server) { members_.erase(server); }
  // Checks the shard after an event that may have changed it.
  void Changed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights);
  void Members(LifeId server, const std::set<Sender>& members);
  // Notes that the server has refused the last set, and keeps `members`.
  void MembersStay(LifeId server, const std::set<Sender>& members);
  const std::set<Sender>* MembersOf(LifeId server) const;
  // Notes that the server answers a worker's pull at `clock` from these weights, in this moment.
  void Serves(LifeId server, ShardId shard, const Sender& sender, Clock64 clock, const Version& version,
              absl::Span<const float> weights);
  // Notes that the server tells a worker this answer, in this moment.
  void Answers(LifeId server, const Sender& sender, const wire::PushAnswer& answer);
  // Checks what is left of the shard when the job is done. `deserted`: the server has no members any more.
  void Final(LifeId server, ShardId shard, absl::Span<const float> weights, bool deserted);

  // --- The scheduler ---

  void Handed(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
              absl::Span<const LifeId> servers);
  // Notes that the scheduler has taken the worker's word that the range is done.
  void RangeDone(const Sender& holder, uint64_t range);
  void JobDone();

  uint64_t progress() const { return progress_; }  // changes whenever anything moves on

 private:
  struct OfShard {
    std::optional<Version> base;
    bool answered = false;
    bool applied = false;
    Version answer;
    uint64_t turn = 0;  // turn of the life that answered
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
  // Checks that the weights are those of so many steps as the version says.
  void CheckSteps(const std::string& what, const Version& version, absl::Span<const float> weights);
  void CheckStep(ShardId shard, const Held& before, const Version& version, absl::Span<const float> weights);
  void CheckFenced(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
                   absl::Span<const LifeId> servers);
  // True if a push may be answered before it is in a step.
  bool answers_first() const { return FactsOf(job_.consistency()).answers_first; }
  bool replicated() const { return job_.durability().mode() == job::Durability::REPLICATED; }
  // Returns whether the shard had these weights at some time under an earlier lineage. If `copied`, a version that was
  // never looked at passes, as long as the shard went beyond it.
  bool WasOnce(ShardId shard, const Version& version, size_t hash, bool copied) const;
  // Checks that a copy that takes over has every push that was answered as applied.
  void CheckKept(ShardId shard, absl::Span<const float> weights);
  // Checks that a server that takes a shard from another has every push that the other answered as applied, and every
  // push that the other had from the beginning. `turn` is the turn that begins.
  void CheckMoved(ShardId shard, uint64_t turn, absl::Span<const float> weights);
  // Returns the number of a turn that begins. A server that was stopped when it was to get the shard, and then was
  // replaced, gets it in a turn that was over before.
  uint64_t NextTurn(ShardId shard, Lineage lineage);
  // Returns the turn in which a server's life got the shard; 0 if it never did. A life that began earlier may have the
  // later turn.
  uint64_t TurnOf(LifeId server, ShardId shard) const;
  // Returns the first turn after `had`, up to `last`, that lacks the push of this slot: a restore has lost it since the
  // turn `had`, which had it. Returns 0 if there is none.
  uint64_t LostBy(ShardId shard, size_t slot, uint64_t had, uint64_t last) const;
  // Returns whether weights that may not lack this push have it, or it will never be in them.
  bool Settled(const Push& push, ShardId shard, const Version& version, absl::Span<const float> weights) const;

  const job::Job& job_;
  const uint32_t shards_;
  Counts& counts_;
  const Violated violated_;
  std::vector<Push> pushes_;  // push of each slot, at slot - 1
  std::map<Sender, std::map<Sequence, uint32_t>> slots_;
  std::map<Sender, Clock64> live_;  // clock at which each began
  std::map<std::pair<LifeId, ShardId>, Held> held_;
  uint64_t last_turn_ = 0;
  std::map<std::pair<LifeId, ShardId>, uint64_t> turns_;
  // Lineage and weights with which a turn began.
  struct Begun {
    Lineage lineage;
    std::vector<float> weights;
  };
  std::map<ShardId, std::map<uint64_t, Begun>> begun_;
  std::map<LifeId, std::set<Sender>> members_;
  // Workers that were put out of a server's set. A scheduler that has forgotten this puts a worker in again, at another
  // clock.
  std::set<Sender> put_out_;
  // Hash of the weights of each version.
  std::map<ShardId, std::map<std::pair<uint32_t, uint64_t>, size_t>> history_;
  // Last turn that has served a pull of the shard.
  std::map<ShardId, uint64_t> served_;
  // Turns of the servers that have greeted the worker for the shard.
  std::map<std::pair<Sender, ShardId>, std::set<uint64_t>> greeted_;
  std::map<uint64_t, Range> ranges_;
  uint64_t progress_ = 0;
};

}  // namespace slackline::world

// A model of one shard that knows no engine: it carries out what the engine decides, as lists of names, and says what
// is wrong with it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ps/consistency/engine.h"
#include "tests/sim/cluster_sim.h"

namespace slackline::sim {

using PushKey = ps::PushRef;

// What a shard's weights are made of: the pushes applied, in order.
using Content = std::vector<PushKey>;

// Names the weights of a shard at one time. A state is never used again, so that those after a restore differ from
// those that it lost, whatever their versions say.
struct Weights {
  Version version;
  size_t pushes = 0;  // that are in them
  uint64_t state = 0;
};

enum class Fate { kApplied, kDiscarded, kLost };

// Whoever violates what must be true is told so: these return a violation, empty where there is none.
class ShardModel {
 public:
  // Both must outlive it. What is interesting is counted in `outcome`.
  ShardModel(const ps::EngineConfig& config, Outcome& outcome) : config_(&config), outcome_(&outcome) {}

  void SetMembers(std::set<ps::Sender> members) { members_ = std::move(members); }
  bool IsMember(const ps::Sender& sender) const { return members_.contains(sender); }

  // A sub-push is complete; the engine has admitted it. `base` is what the bytes would carry.
  void Stage(const PushKey& key, const Weights& base, absl::Time now) { staged_[key] = {base, now}; }
  // The push that the engine is about to decide on; nullopt when it has.
  void Arrives(std::optional<PushKey> key) { arriving_ = key; }

  std::string Apply(const ps::ApplyAction& apply, const std::set<ps::Sender>& fenced, absl::Time now);
  std::string Drop(const PushKey& key);
  std::string Answer(const ps::AnswerAction& action);
  std::string Lose(const ps::LostAction& lost);
  // Who is waited for is a member whose next push is not there, and that holds up a pull at `clock` of a worker that is
  // at `own` itself.
  std::string CheckCulprit(const ps::WaitingAction& waiting, Clock64 clock, Clock64 own) const;

  // The final answer to a push, or that a restore has lost it.
  std::optional<Fate> FateOf(const PushKey& key) const;
  uint64_t TimesApplied(const PushKey& key) const;
  // As the weights are now, which the engine calls `version`.
  Weights Now(const Version& version) const { return {version, content_.size(), states_.back()}; }
  // Nothing waits for a step after its answer.
  bool all_applied() const { return accepted_.empty(); }

  // What a manifest of now holds.
  void Snapshot();
  // Goes back to the last manifest.
  void Restore();

 private:
  struct Staged {
    Weights base;
    absl::Time at;
  };

  // Every live worker that is no part of the step has had its last push discarded.
  bool OthersDiscarded(const ps::ApplyAction& apply) const;
  bool Applied(const PushKey& key) const;
  bool Accepted(const PushKey& key) const;

  const ps::EngineConfig* config_;
  Outcome* outcome_;
  std::set<ps::Sender> members_;
  std::map<PushKey, Staged> staged_;
  std::optional<PushKey> arriving_;
  std::deque<PushKey> accepted_;  // softsync: answered as applied, not in the content yet; oldest first
  Content content_;
  uint64_t last_state_ = 0;
  std::vector<uint64_t> states_ = {0};  // after each push of the content, that before the first one in front
  std::map<PushKey, Fate> fates_;       // every final answer in this line of history
  Content manifest_content_;
  std::vector<uint64_t> manifest_states_ = {0};
  std::map<PushKey, Fate> manifest_fates_;
};

}  // namespace slackline::sim

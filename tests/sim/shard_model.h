// A model of one shard that knows no engine: it carries out the engine's decisions, as lists of names, and reports what
// is wrong with them.
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

// Content of a shard's weights: the applied pushes, in order.
using Content = std::vector<PushKey>;

// Names the weights of a shard at one time. A state is never used again: weights after a restore differ from those that
// the restore lost, whatever their versions say.
struct Weights {
  Version version;
  size_t pushes = 0;  // number of pushes in the weights
  uint64_t state = 0;
};

enum class Fate { kApplied, kDiscarded, kLost };

// Checks the required properties of one shard. Functions that return a string return the violation, or an empty string
// if there is none.
class ShardModel {
 public:
  // Borrows `config` and `outcome`, which must outlive the model. Interesting events are counted in `outcome`.
  ShardModel(const ps::EngineConfig& config, Outcome& outcome) : config_(&config), outcome_(&outcome) {}

  void SetMembers(const ps::MemberSet& set);
  bool IsMember(const ps::Sender& sender) const { return members_.contains(sender); }

  // Records a complete sub-push that the engine has admitted. `base` takes the place of its bytes: the weights from
  // which they were computed.
  void Stage(const PushKey& key, const Weights& base, absl::Time now) { staged_[key] = {base, now}; }
  // Names the push on which the engine is about to decide; nullopt once it has decided.
  void Arrives(std::optional<PushKey> key) { arriving_ = key; }

  std::string Apply(const ps::ApplyAction& apply, const std::set<ps::Sender>& fenced, absl::Time now);
  std::string Drop(const PushKey& key);
  std::string Answer(const ps::AnswerAction& action);
  std::string Lose(const ps::LostAction& lost);
  // Checks that the awaited worker is a member whose next push is missing, and that it holds up a pull at `clock` of a
  // worker that is itself at `own`.
  std::string CheckCulprit(const ps::WaitingAction& waiting, Clock64 clock, Clock64 own) const;

  // Returns the final answer to a push, or kLost if a restore has lost it.
  std::optional<Fate> FateOf(const PushKey& key) const;
  uint64_t TimesApplied(const PushKey& key) const;
  // Returns the name of the present weights, which the engine calls `version`.
  Weights Now(const Version& version) const { return {version, content_.size(), states_.back()}; }
  // True if no answered push still waits for its step.
  bool all_applied() const { return accepted_.empty(); }

  // Keeps what a manifest of now holds.
  void Snapshot();
  // Goes back to the last manifest.
  void Restore();

 private:
  struct Staged {
    Weights base;
    absl::Time at;
  };

  // Returns whether the last push of every live worker outside of the step was discarded.
  bool OthersDiscarded(const ps::ApplyAction& apply) const;
  bool Applied(const PushKey& key) const;
  bool Accepted(const PushKey& key) const;

  const ps::EngineConfig* config_;
  Outcome* outcome_;
  std::set<ps::Sender> members_;
  absl::Time stepped_at_ = absl::InfinitePast();  // time of the last step since the start or a restore
  bool same_members_ = false;                     // the members are those of that time
  std::map<PushKey, Staged> staged_;
  std::optional<PushKey> arriving_;
  std::deque<PushKey> accepted_;  // softsync: answered as applied, not in the content yet; oldest first
  Content content_;
  uint64_t last_state_ = 0;
  std::vector<uint64_t> states_ = {0};  // state before the first push of the content, and after each
  std::map<PushKey, Fate> fates_;       // every final answer in this line of history
  Content manifest_content_;
  std::vector<uint64_t> manifest_states_ = {0};
  std::map<PushKey, Fate> manifest_fates_;
};

}  // namespace slackline::sim

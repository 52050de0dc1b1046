#include "tests/sim/shard_model.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/step_rules.h"

namespace slackline::sim {

bool ShardModel::Applied(const PushKey& key) const { return absl::c_linear_search(content_, key); }
bool ShardModel::Accepted(const PushKey& key) const { return absl::c_linear_search(accepted_, key); }

void ShardModel::SetMembers(const ps::MemberSet& set) {
  same_members_ = false;
  const auto put_out = [&](WorkerId id) {
    std::erase_if(members_, [&](const ps::Sender& member) { return member.worker == id; });
  };
  if (!set.since) members_.clear();
  for (const WorkerId id : set.gone) put_out(id);
  for (const ps::MemberEntry& member : set.members) {
    put_out(member.sender.worker);
    members_.insert(member.sender);
  }
}

std::string ShardModel::Apply(const ps::ApplyAction& apply, const std::set<ps::Sender>& fenced, absl::Time now) {
  const size_t before = content_.size();
  Step step{apply, {}, members_.size(), false, now, stepped_at_, same_members_, accepted_, arriving_};
  stepped_at_ = now;
  same_members_ = true;
  step.others_discarded = config_->mode == ps::Mode::kQuorum && OthersDiscarded(apply);
  for (const auto& part : apply.parts) {
    const PushKey& key = part.push;
    auto staged = staged_.find(key);
    if (staged == staged_.end()) return absl::StrCat("applies what it has not: ", Show(key));
    if (Applied(key)) return absl::StrCat("applies twice: ", Show(key));
    if (fenced.contains(key.sender) && !Accepted(key)) return absl::StrCat("applies a fenced worker's ", Show(key));
    if (!IsMember(key.sender)) ++outcome_->of_the_gone;
    // The gradient must come from weights in this shard's own past.
    const Weights& base = staged->second.base;
    if (base.pushes > before || states_[base.pushes] != base.state) {
      return absl::StrCat("applies ", Show(key), " computed from weights ", ToString(base.version),
                          " that are not in its history at ", ToString(apply.version));
    }
    step.parts.push_back({key, base.version, staged->second.at});
    content_.push_back(key);
    states_.push_back(++last_state_);
    staged_.erase(staged);
    ++outcome_->applied;
  }
  if (std::string broken = BrokenRule(*config_, step); !broken.empty()) {
    return absl::StrCat("takes a step to ", ToString(apply.version), " that ", broken);
  }
  if (config_->mode == ps::Mode::kQuorum && !ReachesQuorum(*config_, step)) ++outcome_->overdue;
  if (config_->grace && HasMoreThanItsQuorum(*config_, step)) ++outcome_->graced;
  std::erase_if(accepted_, [&](const PushKey& key) { return Applied(key); });
  return "";
}

bool ShardModel::OthersDiscarded(const ps::ApplyAction& apply) const {
  for (const ps::Sender& member : members_) {
    if (absl::c_any_of(apply.parts, [&](const auto& part) { return part.push.sender == member; })) continue;
    auto last = fates_.upper_bound({member, Sequence(UINT64_MAX)});
    if (last == fates_.begin()) return false;
    --last;
    if (last->first.sender != member || last->second != Fate::kDiscarded) return false;
  }
  return true;
}

std::string ShardModel::Drop(const PushKey& key) {
  if (Accepted(key)) return absl::StrCat("drops what it has accepted: ", Show(key));
  staged_.erase(key);
  return "";
}

std::string ShardModel::Answer(const ps::AnswerAction& action) {
  const PushKey key{action.sender, action.answer.sequence};
  const Fate fate = action.answer.outcome == ps::Outcome::kApplied ? Fate::kApplied : Fate::kDiscarded;
  auto [known, fresh] = fates_.insert({key, fate});
  if (fresh == action.repeated || known->second != fate) {
    return absl::StrCat("changes its answer to ", Show(key));
  }
  const bool applied = Applied(key);
  if (config_->mode == ps::Mode::kSoftsync && fresh && fate == Fate::kApplied && !applied) accepted_.push_back(key);
  if ((applied || Accepted(key)) != (fate == Fate::kApplied)) {
    return absl::StrCat("answers against its state: ", Show(key));
  }
  if (action.repeated) ++outcome_->repeated_answers;
  if (fate == Fate::kDiscarded) ++outcome_->discarded;
  if (action.answer.reason == ps::DiscardReason::kLate) ++outcome_->late;
  return "";
}

std::string ShardModel::Lose(const ps::LostAction& lost) {
  for (Sequence s = lost.from.Next(); s <= lost.to; s = s.Next()) {
    const PushKey key{lost.sender, s};
    if (!fates_.insert({key, Fate::kLost}).second) {
      return absl::StrCat("reports as lost what is in its state: ", Show(key));
    }
    ++outcome_->lost;
  }
  return "";
}

std::string ShardModel::CheckCulprit(const ps::WaitingAction& waiting, Clock64 clock, Clock64 own) const {
  const auto culprit =
      absl::c_find_if(members_, [&](const ps::Sender& member) { return member.worker == waiting.culprit; });
  if (culprit == members_.end()) return absl::StrCat("waits for worker ", waiting.culprit.value(), ", not a member");
  const PushKey next{*culprit, waiting.culprit_clock.Next()};
  if (staged_.contains(next)) return absl::StrCat("waits for a worker whose push is there: ", Show(next));
  const PushKey mine{waiting.sender, own.Next()};
  if (waiting.own_push != (own < clock && !staged_.contains(mine) ? std::optional(mine.sequence) : std::nullopt)) {
    return absl::StrCat("is wrong about ", Show(mine), ", for which a pull at clock ", clock.value(), " may wait");
  }
  if (waiting.own_push) return *culprit == waiting.sender ? "" : "waits for one worker's push and names another";
  if (own < clock) return "";  // for a step; the culprit is not in it
  const uint64_t bound = config_->mode == ps::Mode::kSsp ? config_->staleness_max : 0;
  if (waiting.culprit_clock.value() + bound < clock.value()) return "";
  return absl::StrCat("waits for worker ", waiting.culprit.value(), " at clock ", waiting.culprit_clock.value(),
                      ", which holds up no pull at clock ", clock.value());
}

std::optional<Fate> ShardModel::FateOf(const PushKey& key) const {
  auto known = fates_.find(key);
  if (known == fates_.end()) return std::nullopt;
  return known->second;
}

uint64_t ShardModel::TimesApplied(const PushKey& key) const {
  return static_cast<uint64_t>(absl::c_count(content_, key));
}

void ShardModel::Snapshot() {
  manifest_content_ = content_;
  manifest_states_ = states_;
  manifest_fates_ = fates_;
  // Not in the weights, not in the manifest.
  for (const PushKey& key : accepted_) manifest_fates_.erase(key);
}

void ShardModel::Restore() {
  staged_.clear();
  accepted_.clear();
  members_.clear();
  stepped_at_ = absl::InfinitePast();
  same_members_ = false;
  content_ = manifest_content_;
  states_ = manifest_states_;
  fates_ = manifest_fates_;
}

}  // namespace slackline::sim

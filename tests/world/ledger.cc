#include "tests/world/ledger.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace slackline::world {
namespace {

// Sums of a few hundred weights that are no binary fractions.
constexpr double kRounding = 0.01;

size_t HashOf(absl::Span<const float> weights) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
}

std::pair<uint32_t, uint64_t> KeyOf(const Version& version) { return {version.lineage.value(), version.number}; }

std::string NameOf(const Sender& sender) {
  return absl::StrCat("worker ", sender.worker.value(), " (incarnation ", sender.incarnation.value(), ")");
}

}  // namespace

Ledger::Push* Ledger::Find(const Sender& sender, Sequence sequence) {
  const auto slots = slots_.find(sender);
  if (slots == slots_.end()) return nullptr;
  const auto slot = slots->second.find(sequence);
  return slot == slots->second.end() ? nullptr : &pushes_[slot->second - 1];
}

std::string Ledger::Name(const Push& push) const {
  return absl::StrCat("push ", push.sequence.value(), " of ", NameOf(push.sender));
}

// --- Workers ----------------------------------------------------------------------------------------------------

uint32_t Ledger::Begin(const Sender& sender, Sequence sequence) {
  ++progress_;
  ++counts_.pushes;
  if (pushes_.size() == kSlotsMax) {
    violated_(absl::StrCat("more than ", kSlotsMax, " pushes: the data is given out again and again"));
    return kSlotsMax;
  }
  pushes_.push_back({sender, sequence, std::vector<OfShard>(shards_)});
  const auto slot = static_cast<uint32_t>(pushes_.size());
  slots_[sender][sequence] = slot;
  return slot;
}

void Ledger::Sent(const Sender& sender, Sequence sequence, ShardId shard, const Version& base) {
  Push* const push = Find(sender, sequence);
  if (push == nullptr) return;
  std::optional<Version>& known = push->shards[shard.value()].base;
  if (known && *known != base) {
    violated_(absl::StrCat(Name(*push), " goes to shard ", shard.value(), " as computed from ", ToString(base),
                           ", and went as computed from ", ToString(*known)));
  }
  known = base;
}

void Ledger::Answered(const Sender& sender, const wire::PushAnswer& answer, LifeId server) {
  Push* const push = Find(sender, Sequence(answer.sequence()));
  if (push == nullptr) return;
  ++progress_;
  const ShardId shard(answer.shard());
  const auto slot = static_cast<size_t>(push - pushes_.data()) + 1;
  OfShard& known = push->shards[shard.value()];
  const bool applied = answer.outcome() == wire::OUTCOME_APPLIED;
  if (known.answered && known.applied != applied) {
    violated_(absl::StrCat(Name(*push), " was answered by shard ", shard.value(), " in two ways"));
  }
  if (!known.answered) ++(applied ? counts_.applied : counts_.discarded);
  known.answered = true;
  known.applied = applied;
  known.answer = {Lineage(answer.version().lineage()), answer.version().number()};
  known.turn = TurnOf(server, shard);
  if (replicated() && applied && LostBy(shard, slot, known.turn, UINT64_MAX) != 0) {
    violated_(absl::StrCat(Name(*push), " is answered as applied by shard ", shard.value(),
                           ", and a copy has taken over without it"));
  }
  const auto held = held_.find({server, shard});
  if (held == held_.end() || (answers_first() && applied)) return;
  if (applied != (held->second.weights[slot] != 0)) {
    violated_(absl::StrCat(Name(*push), " was answered as ", applied ? "applied" : "discarded", " by shard ",
                           shard.value(), ", whose weights ", applied ? "lack" : "have", " it at version ",
                           ToString(held->second.version)));
  }
}

void Ledger::Welcomed(const Sender& sender, ShardId shard, uint64_t lost, uint64_t lost_to, LifeId server) {
  greeted_[{sender, shard}].insert(TurnOf(server, shard));
  for (uint64_t sequence = lost_to - std::min(lost, lost_to) + 1; sequence <= lost_to; ++sequence) {
    Push* const push = Find(sender, Sequence(sequence));
    if (push == nullptr) continue;
    OfShard& known = push->shards[shard.value()];
    if (!known.answered || !known.applied || known.lost) continue;
    if (replicated()) {
      violated_(absl::StrCat(Name(*push), " was answered as applied by shard ", shard.value(),
                             ", and is now said to be lost, though there was a copy"));
    }
    ++counts_.lost;
    known.lost = true;
  }
}

void Ledger::Refused(const Sender& sender, const absl::Status& status) {
  // Of what a scheduler has forgotten it may bring about anything.
  if (put_out_.contains(sender) || counts_.scheduler_crashes > 0) return;
  violated_(absl::StrCat(NameOf(sender),
                         " is refused by a server though it was never out of the set of members: ", status.ToString()));
}

void Ledger::Live(const Sender& sender, Clock64 first_clock) {
  ++progress_;
  live_[sender] = first_clock;
}

void Ledger::Pulled(const Sender& sender, ShardId shard, const Version& version, Clock64 clock,
                    absl::Span<const float> weights) {
  ++counts_.pulls;
  ++progress_;
  const std::string what = absl::StrCat("a pull of ", NameOf(sender), " from shard ", shard.value());
  CheckSteps(what, version, weights);
  const auto& known = history_[shard];
  const auto found = known.find(KeyOf(version));
  if (found != known.end() && found->second != HashOf(weights)) {
    violated_(absl::StrCat(what, " is called version ", ToString(version), ", and is not what that was"));
  }
  const auto slots = slots_.find(sender);
  if (slots == slots_.end() || answers_first()) return;
  for (const auto& [sequence, slot] : slots->second) {
    const OfShard& own = pushes_[slot - 1].shards[shard.value()];
    // What a copy has goes over into its lineage.
    const bool same = replicated() ? own.answer.lineage <= version.lineage : own.answer.lineage == version.lineage;
    const bool promised = sequence <= clock && own.answered && own.applied && same;
    if (promised && weights[slot] == 0) {
      violated_(absl::StrCat(what, " at clock ", clock.value(), " lacks its own push ", sequence.value(),
                             ", which was answered as applied"));
    }
  }
}

// --- Servers ----------------------------------------------------------------------------------------------------

void Ledger::CheckSteps(const std::string& what, const Version& version, absl::Span<const float> weights) {
  double sum = 0;
  for (size_t slot = 1; slot < weights.size(); ++slot) sum += weights[slot];
  const auto steps = static_cast<double>(version.number);
  const bool counted = std::abs(weights[0] - sum) < kRounding && sum < steps + kRounding;
  // A step with late pushes is a smaller one.
  const bool whole = sum > steps - kRounding || job_.consistency().late() == job::Consistency::COUNT;
  if (counted && whole) return;
  violated_(absl::StrCat(what, " is called version ", ToString(version), ", and has pushes for ", sum,
                         " steps and counts ", weights[0], ": it is no version"));
}

void Ledger::Installed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights,
                       From from) {
  ++progress_;
  const size_t hash = HashOf(weights);
  const bool moved = from == From::kMove;
  const std::string what = absl::StrCat("shard ", shard.value(),
                                        moved                    ? ", moved,"
                                        : from == From::kRestore ? ", restored,"
                                                                 : "");
  CheckSteps(what, version, weights);
  auto& known = history_[shard];
  if (from != From::kNothing) {
    ++(moved ? counts_.moves : counts_.restores);
    if (!WasOnce(shard, version, hash, replicated() || moved)) {
      violated_(absl::StrCat(what, " at version ", ToString(version), " is nothing that it ever was"));
    }
    if (replicated()) CheckKept(shard, weights);
  }
  const uint64_t turn = turns_[{server, shard}] = NextTurn(shard, version.lineage);
  if (moved) CheckMoved(shard, turn, weights);
  known[KeyOf(version)] = hash;
  begun_[shard][turn] = {version.lineage, {weights.begin(), weights.end()}};
  held_[{server, shard}] = {version, {weights.begin(), weights.end()}};
}

bool Ledger::WasOnce(ShardId shard, const Version& version, size_t hash, bool copied) const {
  bool looked = !copied, reached = false;
  for (const auto& [past, was] : history_.at(shard)) {
    if (past.first >= version.lineage.value()) continue;
    if (past.second == version.number && was == hash) return true;
    looked = looked || past.second == version.number;
    reached = reached || past.second > version.number;
  }
  // A copy may be between two steps that a server took at once.
  return !looked && reached;
}

void Ledger::CheckKept(ShardId shard, absl::Span<const float> weights) {
  for (size_t slot = 1; slot <= pushes_.size(); ++slot) {
    const OfShard& known = pushes_[slot - 1].shards[shard.value()];
    if (!known.answered || !known.applied || weights[slot] != 0) continue;
    violated_(absl::StrCat(Name(pushes_[slot - 1]), " was answered as applied by shard ", shard.value(),
                           ", and the copy that takes over lacks it"));
  }
}

uint64_t Ledger::NextTurn(ShardId shard, Lineage lineage) {
  constexpr uint64_t kBetween = 1'000;
  last_turn_ += kBetween;
  const auto& turns = begun_[shard];
  const auto later =
      std::find_if(turns.begin(), turns.end(), [&](const auto& begun) { return begun.second.lineage > lineage; });
  if (later == turns.end()) return last_turn_;
  uint64_t turn = later->first - 1;
  while (turns.contains(turn)) --turn;
  return turn;
}

void Ledger::CheckMoved(ShardId shard, uint64_t turn, absl::Span<const float> weights) {
  const auto& turns = begun_.at(shard);
  const auto before = turns.lower_bound(turn);
  if (before == turns.begin()) return violated_(absl::StrCat("shard ", shard.value(), " has moved from nowhere"));
  const auto& [last, begun] = *std::prev(before);
  const std::vector<float>& had = begun.weights;
  for (size_t slot = 1; slot <= pushes_.size(); ++slot) {
    const OfShard& known = pushes_[slot - 1].shards[shard.value()];
    const bool answered = known.answered && known.applied && known.turn == last;
    if ((!answered && had[slot] == 0) || weights[slot] != 0) continue;
    violated_(absl::StrCat(Name(pushes_[slot - 1]), answered ? " was answered as applied by" : " was in", " shard ",
                           shard.value(), ", and the server that it has moved to lacks it"));
  }
}

void Ledger::Answers(LifeId server, const Sender& sender, const wire::PushAnswer& answer) {
  Push* const push = Find(sender, Sequence(answer.sequence()));
  if (!replicated() || push == nullptr || answer.outcome() != wire::OUTCOME_APPLIED) return;
  const auto slot = static_cast<size_t>(push - pushes_.data()) + 1;
  const uint64_t lost_by = LostBy(ShardId(answer.shard()), slot, TurnOf(server, ShardId(answer.shard())), UINT64_MAX);
  if (lost_by == 0) return;
  violated_(absl::StrCat("a server that is none any more answers ", Name(*push), " as applied by shard ",
                         answer.shard(), ", and who has its place lacks it"));
}

void Ledger::Changed(LifeId server, ShardId shard, const Version& version, absl::Span<const float> weights) {
  Held& held = held_[{server, shard}];
  if (version == held.version) return;
  ++progress_;
  CheckSteps(absl::StrCat("shard ", shard.value()), version, weights);
  CheckStep(shard, held, version, weights);
  history_[shard][KeyOf(version)] = HashOf(weights);
  held.version = version;
  held.weights.assign(weights.begin(), weights.end());
}

void Ledger::CheckStep(ShardId shard, const Held& before, const Version& version, absl::Span<const float> weights) {
  const job::Consistency::Mode mode = job_.consistency().mode();
  const std::string what =
      absl::StrCat("shard ", shard.value(), " goes from version ", ToString(before.version), " to ", ToString(version));
  if (version.lineage != before.version.lineage || version.number < before.version.number) return violated_(what);
  const bool one = version.number == before.version.number + 1;
  const bool alone = mode == job::Consistency::ASYNC || mode == job::Consistency::SSP;
  for (size_t slot = 1; slot < weights.size(); ++slot) {
    if (weights[slot] == before.weights[slot]) continue;
    if (slot > pushes_.size()) return violated_(absl::StrCat(what, " with a push that nobody began"));
    const Push& push = pushes_[slot - 1];
    const std::optional<Version>& base = push.shards[shard.value()].base;
    if (before.weights[slot] != 0) {
      violated_(absl::StrCat(what, " with ", Name(push), ", which it has already"));
    } else if (!base || base->lineage != version.lineage) {
      violated_(absl::StrCat(what, " with ", Name(push), ", computed from ", base ? ToString(*base) : "nothing",
                             ", which is not in its history"));
    } else if (mode == job::Consistency::QUORUM && !answers_first() && one && base->number != before.version.number) {
      violated_(absl::StrCat(what, " with ", Name(push), ", which is late: computed from ", ToString(*base)));
    } else if (alone && std::abs(weights[slot] - 1) > kRounding) {
      violated_(absl::StrCat(what, " with ", Name(push), " counted as ", weights[slot]));
    }
  }
}

void Ledger::Members(LifeId server, const std::set<Sender>& members) {
  std::set<Sender>& known = members_[server];
  for (const Sender& before : known) {
    if (!members.contains(before)) put_out_.insert(before);
  }
  known = members;
}

void Ledger::MembersStay(LifeId server, const std::set<Sender>& members) {
  members_[server] = members;
  for (const Sender& member : members) put_out_.erase(member);
}

const std::set<Sender>* Ledger::MembersOf(LifeId server) const {
  const auto found = members_.find(server);
  return found == members_.end() ? nullptr : &found->second;
}

bool Ledger::Settled(const Push& push, ShardId shard, const Version& version, absl::Span<const float> weights) const {
  const OfShard& known = push.shards[shard.value()];
  const auto slot = static_cast<size_t>(&push - pushes_.data()) + 1;
  if (weights[slot] != 0) return true;
  // Lost, or discarded, or about to be: what was computed before a restore never counts after it.
  return known.base && (known.base->lineage != version.lineage || (known.answered && !known.applied));
}

void Ledger::Serves(LifeId server, ShardId shard, const Sender& sender, Clock64 clock, const Version& version,
                    absl::Span<const float> weights) {
  const job::Consistency::Mode mode = job_.consistency().mode();
  uint64_t& last = served_[shard];
  if (replicated() && last > TurnOf(server, shard)) {
    violated_(absl::StrCat("a server that is none any more serves ", NameOf(sender), " shard ", shard.value(),
                           " at version ", ToString(version), "; who has its place serves, too"));
  }
  last = std::max(last, TurnOf(server, shard));
  if (mode == job::Consistency::SOFTSYNC || mode == job::Consistency::QUORUM) return;
  const auto lacks = [&](const Push& push) {
    violated_(absl::StrCat("shard ", shard.value(), " serves ", NameOf(sender), " at clock ", clock.value(),
                           " with version ", ToString(version), ", which lacks ", Name(push)));
  };
  const auto check = [&](const Sender& whose, uint64_t up_to) {
    const auto slots = slots_.find(whose);
    if (slots == slots_.end()) return;
    for (const auto& [sequence, slot] : slots->second) {
      if (sequence.value() > up_to) break;
      if (!Settled(pushes_[slot - 1], shard, version, weights)) return lacks(pushes_[slot - 1]);
    }
  };
  if (!put_out_.contains(sender)) check(sender, clock.value());
  if (mode == job::Consistency::ASYNC) return;
  const uint64_t bound = mode == job::Consistency::BSP ? 0 : job_.consistency().staleness_max();
  if (clock.value() <= bound) return;
  const uint64_t needed = clock.value() - bound;
  for (const Sender& other : members_[server]) {
    if (other == sender || put_out_.contains(other)) continue;
    check(other, needed);
    const auto live = live_.find(other);
    if (live == live_.end()) continue;
    const auto slots = slots_.find(other);
    const Clock64 last = slots == slots_.end() ? live->second : slots->second.rbegin()->first;
    if (last.value() >= needed) continue;
    violated_(absl::StrCat("shard ", shard.value(), " serves ", NameOf(sender), " at clock ", clock.value(),
                           " with a bound of ", bound, " while ", NameOf(other), " is at ", last.value()));
  }
}

uint64_t Ledger::TurnOf(LifeId server, ShardId shard) const {
  const auto found = turns_.find({server, shard});
  return found == turns_.end() ? 0 : found->second;
}

uint64_t Ledger::LostBy(ShardId shard, size_t slot, uint64_t had, uint64_t last) const {
  const auto turns = begun_.find(shard);
  if (turns == begun_.end()) return 0;
  for (auto turn = turns->second.upper_bound(had); turn != turns->second.end(); ++turn) {
    if (turn->first <= last && turn->second.weights[slot] == 0) return turn->first;
  }
  return 0;
}

void Ledger::Final(LifeId server, ShardId shard, absl::Span<const float> weights, bool deserted) {
  for (const Push& push : pushes_) {
    const OfShard& known = push.shards[shard.value()];
    if (!known.answered || !known.applied) continue;
    const auto slot = static_cast<size_t>(&push - pushes_.data()) + 1;
    const std::string what = absl::StrCat(Name(push), " was answered as applied by shard ", shard.value());
    if (weights[slot] != 0) {
      if (known.lost) violated_(absl::StrCat(what, ", then said to be lost, and is there"));
      continue;
    }
    if (known.lost) continue;
    const auto greeted = greeted_.find({push.sender, shard});
    const uint64_t lost_by = LostBy(shard, slot, known.turn, TurnOf(server, shard));
    if (lost_by == 0) {
      // Pushes that were answered first are applied when their step is full, or when all workers are gone.
      if (!answers_first() || deserted)
        violated_(absl::StrCat(what, " and is not there, though nothing was restored since"));
    } else if (replicated()) {
      violated_(absl::StrCat(what, " and is not there, though there was a copy"));
    } else if (greeted != greeted_.end() && greeted->second.contains(lost_by)) {
      // Who never heard of that life may not be told by a later one: that knows of what it has lost itself.
      violated_(absl::StrCat(what, ", a restore has lost it, and its worker, which went on, was not told"));
    }
  }
}

// --- The scheduler ----------------------------------------------------------------------------------------------

void Ledger::Handed(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
                    absl::Span<const LifeId> servers) {
  ++progress_;
  const auto known = ranges_.find(range.range());
  if (known != ranges_.end() && known->second.holder == holder) return;  // asked again
  CheckFenced(holder, range, scheduler_life, servers);
  ranges_[range.range()] = {range, holder, scheduler_life, false};
}

void Ledger::CheckFenced(const Sender& holder, const wire::RangeTask& range, uint64_t scheduler_life,
                         absl::Span<const LifeId> servers) {
  for (const auto& [id, other] : ranges_) {
    const bool overlaps = other.task.epoch() == range.epoch() && other.task.begin() < range.end() &&
                          range.begin() < other.task.end() && other.holder != holder;
    // A scheduler that was started again may not know of it.
    if (!overlaps || other.scheduler_life != scheduler_life) continue;
    const std::string what =
        absl::StrCat("samples ", range.begin(), " to ", range.end(), " of epoch ", range.epoch(), " are given to ",
                     NameOf(holder), " and were given to ", NameOf(other.holder));
    if (other.done) violated_(absl::StrCat(what, ", which has done them"));
    for (const LifeId server : servers) {
      const std::set<Sender>* const members = MembersOf(server);
      if (members == nullptr || !members->contains(other.holder)) continue;
      violated_(absl::StrCat(what, ", which a server still takes for a member"));
    }
  }
}

void Ledger::RangeDone(const Sender& holder, uint64_t range) {
  ++progress_;
  const auto found = ranges_.find(range);
  if (found == ranges_.end() || found->second.holder != holder) {
    return violated_(absl::StrCat("range ", range, " is done by ", NameOf(holder), ", which never had it"));
  }
  found->second.done = true;
}

void Ledger::JobDone() {
  for (uint32_t epoch = 0; epoch < job_.training().epochs(); ++epoch) {
    std::vector<std::pair<uint64_t, uint64_t>> done;
    for (const auto& [id, range] : ranges_) {
      if (range.done && range.task.epoch() == epoch) done.emplace_back(range.task.begin(), range.task.end());
    }
    std::sort(done.begin(), done.end());
    uint64_t next = 0;
    for (const auto& [begin, end] : done) {
      if (begin > next) break;
      counts_.ranges_twice += begin < next;
      next = std::max(next, end);
    }
    const uint64_t all = job_.data().train_images_max();
    if (next != all) {
      violated_(absl::StrCat("the job is done, and samples from ", next, " of ", all, " of epoch ", epoch, " are not"));
    }
  }
}

}  // namespace slackline::world

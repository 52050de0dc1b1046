#include "worker/client/session.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::worker {

Session::Session(size_t shards, Clock64 first_clock)
    : shards_(shards),
      first_clock_(first_clock),
      clock_(first_clock),
      sequence_(first_clock),
      finished_(first_clock),
      behind_(shards),
      unanswered_(shards) {
  for (Shard& shard : shards_) shard.answered = shard.pulled = first_clock;
}

std::vector<Session::Send> Session::BeginPull() {
  SLACKLINE_CHECK(idle());
  return Ask(/*push=*/false);
}

std::vector<Session::Send> Session::BeginStep() {
  SLACKLINE_CHECK(has_taken_);  // a gradient comes from weights
  sequence_ = sequence_.Next();
  for (Shard& shard : shards_) shard.bases.push_back(shard.taken);
  return Ask(/*push=*/true);
}

std::vector<Session::Send> Session::Ask(bool push) {
  std::vector<Send> sends;
  last_pull_ = last_pull_.Next();
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    pulls_awaited_ += shard.asked.empty();
    shard.asked.push_back({last_pull_, sequence_});
    if (!shard.connected) continue;
    Send send = ComposePull(ShardId(static_cast<uint32_t>(i)), shard.asked.back());
    if (push) send.push = sequence_;
    if (push) send.base = shard.bases.back();
    sends.push_back(send);
  }
  return sends;
}

Session::Send Session::ComposePull(ShardId id, const Asked& asked) const {
  Send send;
  send.shard = id;
  send.pull = asked.id;
  send.clock = asked.clock;
  send.known = shards_[id.value()].version;
  return send;
}

std::vector<Session::Send> Session::Connected(ShardId id) {
  Shard& shard = shards_[id.value()];
  shard.connected = true;
  std::vector<Send> sends;
  // Chunks of the earlier pull may have been written already: what the parameters hold is a mixture now.
  if (!shard.asked.empty()) shard.version.reset();
  for (Asked& asked : shard.asked) {
    last_pull_ = last_pull_.Next();
    asked.id = last_pull_;
    sends.push_back(ComposePull(id, asked));
  }
  // Each push goes with the pull of its step, where that is still awaited.
  for (size_t i = 0; i < shard.bases.size(); ++i) {
    const Sequence sequence(shard.answered.value() + 1 + i);
    auto send = std::find_if(sends.begin(), sends.end(), [&](const Send& send) { return send.clock >= sequence; });
    if (send == sends.end() || send->clock != sequence) {
      send = sends.insert(send, Send());
      send->shard = id;
      send->clock = sequence;
    }
    send->push = sequence;
    send->base = shard.bases[i];
  }
  return sends;
}

void Session::Disconnected(ShardId id) { shards_[id.value()].connected = false; }

absl::StatusOr<bool> Session::Answered(ShardId id, Sequence sequence, Outcome outcome) {
  Shard& shard = shards_[id.value()];
  if (sequence > sequence_) {
    return absl::InternalError(absl::StrCat("shard ", id.value(), " answered push ", sequence.value(),
                                            ", the last one sent is ", sequence_.value()));
  }
  if (sequence <= shard.answered) return false;
  if (sequence != shard.answered.Next()) {
    return absl::InternalError(absl::StrCat("shard ", id.value(), " answered push ", sequence.value(), " before push ",
                                            shard.answered.value() + 1));
  }
  const Sequence done = Done(shard);
  shard.answered = sequence;
  shard.bases.erase(shard.bases.begin());
  (outcome == Outcome::kApplied ? applied_ : discarded_) += 1;
  if (sequence == clock_.Next()) --unanswered_;
  while (unanswered_ == 0) {
    clock_ = clock_.Next();
    unanswered_ = static_cast<size_t>(
        std::count_if(shards_.begin(), shards_.end(), [&](const Shard& other) { return other.answered <= clock_; }));
  }
  Progress(done, Done(shard));
  return true;
}

std::optional<Clock64> Session::Awaits(ShardId id, PullId pull) const {
  for (const Asked& asked : shards_[id.value()].asked) {
    if (asked.id == pull) return asked.clock;
  }
  return std::nullopt;
}

Session::Clocks Session::Pulled(ShardId id, PullId pull, Version version) {
  Clocks clocks;
  if (!Awaits(id, pull)) return clocks;
  Shard& shard = shards_[id.value()];
  const Sequence done = Done(shard);
  for (bool last = false; !last;) {
    last = shard.asked.front().id == pull;
    clocks.push_back(shard.asked.front().clock);
    shard.served.push_back({clocks.back(), version});
    shard.asked.erase(shard.asked.begin());
  }
  pulls_awaited_ -= shard.asked.empty();
  shard.version = version;
  shard.pulled = clocks.back();
  Progress(done, Done(shard));
  return clocks;
}

void Session::Take(Clock64 clock) {
  has_taken_ = true;
  for (Shard& shard : shards_) {
    for (; !shard.served.empty() && shard.served.front().clock <= clock; shard.served.erase(shard.served.begin())) {
      shard.taken = shard.served.front().version;
    }
  }
}

void Session::Progress(Sequence before, Sequence after) {
  if (before > finished_ || after <= finished_) return;
  --behind_;
  while (behind_ == 0) {
    finished_ = finished_.Next();
    behind_ = static_cast<size_t>(
        std::count_if(shards_.begin(), shards_.end(), [&](const Shard& other) { return Done(other) <= finished_; }));
  }
}

std::vector<ShardId> Session::Awaited() const {
  std::vector<ShardId> awaited;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i].asked.empty() || shards_[i].answered < sequence_) {
      awaited.emplace_back(static_cast<uint32_t>(i));
    }
  }
  return awaited;
}

}  // namespace slackline::worker

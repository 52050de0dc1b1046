#include "worker/client/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace slackline::worker {

Session::Session(size_t shards, Clock64 first_clock)
    : shards_(shards), first_clock_(first_clock), clock_(first_clock), sequence_(first_clock) {
  for (Shard& shard : shards_) shard.answered = first_clock;
}

std::vector<Session::Send> Session::BeginPull() {
  SLACKLINE_CHECK(idle());
  std::vector<Send> sends;
  last_pull_ = last_pull_.Next();
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].pull = last_pull_;
    if (shards_[i].connected) sends.push_back(Compose(ShardId(static_cast<uint32_t>(i))));
  }
  waiting_ = shards_.size();
  return sends;
}

std::vector<Session::Send> Session::BeginStep() {
  SLACKLINE_CHECK(idle());
  sequence_ = sequence_.Next();
  for (Shard& shard : shards_) {
    SLACKLINE_CHECK(shard.version.has_value());  // a gradient comes from weights
    shard.base = *shard.version;
  }
  return BeginPull();
}

Session::Send Session::Compose(ShardId id) {
  const Shard& shard = shards_[id.value()];
  Send send;
  send.shard = id;
  if (shard.answered < sequence_) send.push = sequence_;
  send.base = shard.base;
  send.pull = shard.pull;
  send.clock = sequence_;
  send.known = shard.version;
  return send;
}

std::optional<Session::Send> Session::Connected(ShardId id) {
  Shard& shard = shards_[id.value()];
  shard.connected = true;
  if (!shard.pull && shard.answered >= sequence_) return std::nullopt;
  // Chunks of the earlier pull may have been written already: what the parameters hold is a mixture now.
  if (shard.pull) {
    last_pull_ = last_pull_.Next();
    shard.pull = last_pull_;
    shard.version.reset();
  }
  return Compose(id);
}

void Session::Disconnected(ShardId id) { shards_[id.value()].connected = false; }

absl::StatusOr<bool> Session::Answered(ShardId id, Sequence sequence, Outcome outcome) {
  Shard& shard = shards_[id.value()];
  if (sequence > sequence_) {
    return absl::InternalError(absl::StrCat("shard ", id.value(), " answered push ", sequence.value(),
                                            ", the last one sent is ", sequence_.value()));
  }
  if (sequence <= shard.answered) return false;
  shard.answered = sequence;
  (outcome == Outcome::kApplied ? applied_ : discarded_) += 1;
  Progress();
  return true;
}

bool Session::Awaits(ShardId id, PullId pull) const { return shards_[id.value()].pull == pull; }

bool Session::Pulled(ShardId id, PullId pull, Version version) {
  Shard& shard = shards_[id.value()];
  if (shard.pull != pull) return false;
  shard.pull.reset();
  shard.version = version;
  Progress();
  return true;
}

void Session::Progress() {
  waiting_ = Awaited().size();
  Sequence slowest = sequence_;
  for (const Shard& shard : shards_) slowest = std::min(slowest, shard.answered);
  clock_ = slowest;
}

std::vector<ShardId> Session::Awaited() const {
  std::vector<ShardId> awaited;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].pull || shards_[i].answered < sequence_) awaited.push_back(ShardId(static_cast<uint32_t>(i)));
  }
  return awaited;
}

}  // namespace slackline::worker

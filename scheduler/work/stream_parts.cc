#include "scheduler/work/stream_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "scheduler/base/forgotten.h"

namespace slackline::scheduler {

absl::Status StreamParts::Check(const wire::Stream& stream) {
  if (stream.parts() >= 1 && stream.parts() <= kPartsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found a stream of ", stream.parts(), " parts; allowed are 1 to ", kPartsMax));
}

absl::Status StreamParts::CheckSame(const wire::Stream& other) const {
  const auto differs = [](absl::string_view what, const auto& own, const auto& theirs) {
    return absl::InvalidArgumentError(absl::StrCat("the job's stream has ", what, " ", own, ", this worker's has ",
                                                   theirs, ": all workers, and a run that continues, need the same"));
  };
  if (stream_.parts() != other.parts()) return differs("a number of parts of", stream_.parts(), other.parts());
  if (stream_.passes() != other.passes()) return differs("passes", stream_.passes(), other.passes());
  if (stream_.fingerprint() == other.fingerprint()) return absl::OkStatus();
  return differs("a list of parts with fingerprint", absl::StrFormat("%016x", stream_.fingerprint()),
                 absl::StrFormat("%016x", other.fingerprint()));
}

std::vector<wire::PartLease> StreamParts::Lease(const Holder& holder, uint32_t wanted) {
  std::vector<wire::PartLease> leases;
  const auto add = [&leases](uint64_t number, const Lent& lent) {
    wire::PartLease& lease = leases.emplace_back();
    lease.set_lease(number);
    lease.set_part(lent.part.part);
    lease.set_pass(lent.part.pass);
    lease.set_records(lent.records);
  };
  for (const auto& [number, lent] : leased_) {
    if (lent.holder == holder) add(number, lent);
  }
  while (leases.size() < std::min(wanted, kHeldMax) && HasFree()) {
    if (free_.empty()) {
      for (uint32_t part = 0; part < stream_.parts(); ++part) free_.insert({{next_pass_, part}, 0});
      ++next_pass_;
    }
    const auto first = free_.begin();
    const Lent& lent = leased_[++last_lease_] = {holder, first->first, first->second};
    free_.erase(first);
    add(last_lease_, lent);
  }
  return leases;
}

void StreamParts::Reached(const Holder& holder, const Positions& positions) {
  for (const wire::PartPosition& position : positions) {
    const auto lent = leased_.find(position.lease());
    if (lent == leased_.end() || lent->second.holder != holder) continue;
    lent->second.records = std::max(lent->second.records, position.records());
    if (position.ended()) leased_.erase(lent);
  }
}

void StreamParts::Fenced(ServerId server, const wire::FencedWorker& worker) {
  const Holder holder = {WorkerId(worker.worker()), Incarnation(worker.incarnation())};
  if (Holds(holder)) fenced_[holder][server] = worker;
}

void StreamParts::Release(const Holder& holder, uint32_t shards) {
  for (auto lent = leased_.begin(); lent != leased_.end();) {
    if (lent->second.holder != holder) {
      ++lent;
      continue;
    }
    free_[lent->second.part] = PositionOf(lent->first, lent->second, shards);
    lent = leased_.erase(lent);
  }
  fenced_.erase(holder);
}

uint64_t StreamParts::PositionOf(uint64_t lease, const Lent& lent, uint32_t shards) const {
  const auto told = fenced_.find(lent.holder);
  if (told == fenced_.end()) return lent.records;
  uint64_t records = UINT64_MAX;
  uint32_t known = 0;
  for (const auto& [server, worker] : told->second) {
    for (const wire::PartPosition& position : worker.parts()) {
      if (position.lease() != lease) continue;
      records = std::min(records, position.records());
      known += worker.shards();
    }
  }
  return known == shards ? std::max(lent.records, records) : lent.records;
}

bool StreamParts::Holds(const Holder& holder) const {
  return std::any_of(leased_.begin(), leased_.end(), [&](const auto& lent) { return lent.second.holder == holder; });
}

std::vector<Holder> StreamParts::Holders() const {
  std::set<Holder> holders;
  for (const auto& [lease, lent] : leased_) holders.insert(lent.holder);
  return {holders.begin(), holders.end()};
}

void StreamParts::Save(state::Stream& state) const {
  *state.mutable_stream() = stream_;
  state.set_last_lease(last_lease_);
  state.set_next_pass(next_pass_);
  const auto add = [&state](const Part& part, uint64_t records) -> state::StreamPart& {
    state::StreamPart& open = *state.add_open();
    open.set_pass(part.pass);
    open.set_part(part.part);
    open.set_records(records);
    return open;
  };
  for (const auto& [part, records] : free_) add(part, records);
  for (const auto& [lease, lent] : leased_) {
    state::StreamPart& open = add(lent.part, lent.records);
    *open.mutable_holder() = ToState(lent.holder);
    open.set_lease(lease);
  }
}

void StreamParts::Restore(const state::Stream& state) {
  SLACKLINE_CHECK(last_lease_ == 0);
  last_lease_ = state.last_lease() + kForgottenMax;
  next_pass_ = state.next_pass();
  for (const state::StreamPart& open : state.open()) {
    const Part part = {open.pass(), open.part()};
    if (open.has_holder()) {
      leased_[open.lease()] = {FromState(open.holder()), part, open.records()};
    } else {
      free_[part] = open.records();
    }
  }
}

}  // namespace slackline::scheduler

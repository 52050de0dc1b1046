#include "tests/world/network.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace slackline::world {
namespace {

// How long a connection to where nobody answers is tried.
constexpr absl::Duration kConnect = absl::Seconds(1);

absl::Status Reset() { return absl::UnavailableError("connection reset"); }

}  // namespace

void Network::Gone(Host& host, bool silently) {
  if (const auto found = hosts_.find(host.address); found != hosts_.end() && found->second == &host) {
    hosts_.erase(found);
  }
  for (auto& [id, stream] : streams_) {
    for (int side = 0; side < 2; ++side) {
      if (stream.sides[side].life != host.life) continue;
      stream.sides[side].end = nullptr;
      // What it had sent may still arrive.
      const absl::Duration late =
          silently ? absl::Seconds(30) : random_.Between(absl::ZeroDuration(), absl::Milliseconds(20));
      TellClosed(id, 1 - side, std::max(stream.sides[1 - side].last, events_.Now() + late), Reset());
    }
  }
  std::erase_if(streams_, [](const auto& entry) {
    return entry.second.sides[0].end == nullptr && entry.second.sides[1].end == nullptr;
  });
  std::vector<uint64_t> calls;
  for (const auto& [call, pending] : pending_) {
    if (pending.callee == host.life && !silently) calls.push_back(call);
  }
  for (const uint64_t call : calls) {
    events_.After(random_.Between(absl::ZeroDuration(), absl::Milliseconds(20)), pending_.at(call).caller,
                  [this, call] { Fail(call, Reset()); });
  }
}

// --- Calls ------------------------------------------------------------------------------------------------------

void Network::CallErased(const Host& from, const std::string& to, absl::Duration timeout,
                         std::function<Answer(Host& callee)> serve, std::function<void(const absl::Status&)> failed) {
  ++counts_.calls;
  const uint64_t call = ++last_call_;
  const auto found = hosts_.find(to);
  Host* const callee = found == hosts_.end() ? nullptr : found->second;
  pending_[call] = {callee == nullptr ? 0 : callee->life, from.life, std::move(failed)};
  events_.After(timeout, from.life, [this, call] { Fail(call, absl::DeadlineExceededError("no answer in time")); });
  if (callee == nullptr) {
    events_.After(random_.Between(absl::ZeroDuration(), absl::Milliseconds(5)), from.life,
                  [this, call] { Fail(call, absl::UnavailableError("nobody listens there")); });
    return;
  }
  // A lost call has reached its callee as often as not.
  const bool lost = Now(lost_) || Cut(from.name, callee->name) > events_.Now();
  counts_.calls_lost += lost;
  if (lost && (Cut(from.name, callee->name) > events_.Now() || random_.Chance(0.5))) return;
  const int times = Now(repeated_) ? 2 : 1;
  counts_.calls_repeated += times - 1;
  for (int i = 0; i < times; ++i) {
    const uint64_t told = lost ? 0 : call;
    events_.After(Delay(from.name, callee->name), callee->life,
                  [this, told, name = from.name, callee, serve] { Serve(told, name, callee, serve); });
  }
}

void Network::Serve(uint64_t call, const std::string& from, Host* callee, const std::function<Answer(Host&)>& serve) {
  const LifeId life = callee->life;
  const std::string name = callee->name;
  const Answer answer = serve(*callee);
  const auto pending = pending_.find(call);
  if (pending == pending_.end()) return;
  // It may have died of it: then its last words do not come.
  if (!events_.Alive(life)) return;
  events_.At(Arrival(name, from), pending->second.caller, [this, call, answer] {
    if (pending_.erase(call) > 0) answer();
  });
}

void Network::Fail(uint64_t call, const absl::Status& status) {
  const auto pending = pending_.find(call);
  if (pending == pending_.end()) return;
  const auto failed = std::move(pending->second.failed);
  pending_.erase(pending);
  failed(status);
}

// --- Streams ----------------------------------------------------------------------------------------------------

StreamId Network::Open(const Host& from, const std::string& to, StreamEnd& end, Method method) {
  const StreamId id = ++last_stream_;
  ++counts_.streams;
  Stream& stream = streams_[id];
  stream.sides[0] = {from.life, from.name, &end, events_.Now()};
  const auto found = hosts_.find(to);
  if (found == hosts_.end() || Cut(from.name, found->second->name) > events_.Now()) {
    const absl::Duration wait = found == hosts_.end() ? absl::Milliseconds(2) : kConnect;
    TellClosed(id, 0, events_.Now() + wait, absl::UnavailableError("cannot connect"));
    return id;
  }
  Host* const host = found->second;
  stream.sides[1] = {host->life, host->name, nullptr, events_.Now() + Delay(from.name, host->name)};
  events_.At(stream.sides[1].last, host->life, [this, id, host, method] {
    const auto opened = streams_.find(id);
    if (opened == streams_.end() || opened->second.broken || opened->second.sides[0].end == nullptr) return;
    opened->second.sides[1].end = host->Accept(id, method);
    if (opened->second.sides[1].end == nullptr) TellClosed(id, 0, events_.Now(), Reset());
  });
  return id;
}

void Network::Send(StreamId id, LifeId from, std::any what) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.broken) return;
  Stream& stream = found->second;
  const int to = stream.sides[0].life == from ? 1 : 0;
  if (stream.sides[1 - to].end == nullptr || stream.sides[to].life == 0) return;
  Side& side = stream.sides[to];
  side.last = std::max(side.last, Arrival(stream.sides[1 - to].name, side.name));
  events_.At(side.last, side.life, [this, id, to, what = std::move(what)] {
    const auto still = streams_.find(id);
    if (still == streams_.end() || still->second.broken || still->second.sides[to].end == nullptr) return;
    still->second.sides[to].end->Received(what);
  });
}

void Network::Close(StreamId id, LifeId from, const absl::Status& status) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const int side = found->second.sides[0].life == from ? 0 : 1;
  found->second.sides[side].end = nullptr;
  if (found->second.sides[1 - side].life == 0) {
    streams_.erase(found);
    return;
  }
  Side& other = found->second.sides[1 - side];
  other.last = std::max(other.last, Arrival(found->second.sides[side].name, other.name));
  if (!found->second.broken) TellClosed(id, 1 - side, other.last, status);
}

void Network::TellClosed(StreamId id, int side, absl::Time at, const absl::Status& status) {
  events_.At(at, streams_.at(id).sides[side].life, [this, id, side, status] {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    StreamEnd* const end = std::exchange(found->second.sides[side].end, nullptr);
    if (found->second.sides[1 - side].end == nullptr) streams_.erase(found);
    if (end != nullptr) end->Closed(status);
  });
}

// --- Faults -----------------------------------------------------------------------------------------------------

void Network::Break(StreamId id, Stream& stream) {
  if (stream.broken) return;
  ++counts_.streams_broken;
  stream.broken = true;
  for (int side = 0; side < 2; ++side) {
    if (stream.sides[side].end == nullptr) continue;
    // One end may learn of it much later than the other.
    const absl::Duration late = random_.Chance(0.2) ? absl::Seconds(2) : absl::Milliseconds(10);
    TellClosed(id, side, events_.Now() + random_.Between(absl::ZeroDuration(), late), Reset());
  }
}

bool Network::Whole(StreamId id) const {
  const auto found = streams_.find(id);
  return found != streams_.end() && !found->second.broken && found->second.sides[0].end != nullptr &&
         found->second.sides[1].end != nullptr;
}

bool Network::Quiet(StreamId id) const {
  if (!Whole(id)) return false;
  const auto& sides = streams_.at(id).sides;
  return std::max(sides[0].last, sides[1].last) + absl::Milliseconds(10) < events_.Now();
}

std::pair<LifeId, LifeId> Network::BreakOne(uint64_t which) {
  if (streams_.empty()) return {};
  const auto at = std::next(streams_.begin(), static_cast<std::ptrdiff_t>(which % streams_.size()));
  Break(at->first, at->second);
  return {at->second.sides[0].life, at->second.sides[1].life};
}

void Network::Partition(const std::string& a, const std::string& b, absl::Time until) {
  ++counts_.partitions;
  absl::Time& ends = partitions_[std::minmax(a, b)];
  ends = std::max(ends, until);
  for (auto& [id, stream] : streams_) {
    if (std::minmax(stream.sides[0].name, stream.sides[1].name) != std::minmax(a, b)) continue;
    // Some live through it.
    if (random_.Chance(0.5)) Break(id, stream);
  }
}

void Network::Slow(const std::string& name, absl::Time until) {
  ++counts_.slow_links;
  slow_[name] = until;
}

bool Network::IsSlow(const std::string& name) const {
  const auto found = slow_.find(name);
  return found != slow_.end() && events_.Now() < found->second;
}

absl::Time Network::Cut(const std::string& a, const std::string& b) const {
  const auto found = partitions_.find(std::minmax(a, b));
  return found == partitions_.end() ? absl::InfinitePast() : found->second;
}

absl::Duration Network::Delay(const std::string& a, const std::string& b) {
  absl::Duration most = random_.Chance(0.05) ? absl::Milliseconds(20) : absl::Milliseconds(2);
  for (const std::string& name : {a, b}) {
    if (IsSlow(name)) most = absl::Milliseconds(400);
  }
  return random_.Between(absl::Microseconds(100), most);
}

absl::Time Network::Arrival(const std::string& a, const std::string& b) {
  return std::max(events_.Now(), Cut(a, b)) + Delay(a, b);
}

}  // namespace slackline::world

// The part of Exchange that speaks: which items go to which server, in what order and form.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "worker/client/exchange.h"

namespace slackline::worker {
// --- Steps ------------------------------------------------------------------------------------------------------

void Exchange::OpenStep(LentPush push) {
  if (leaving_ || !failure_.ok()) return;
  SLACKLINE_CHECK(!open_);
  open_ = InFlight{.sequence = session_.sequence().Next(),
                   .push = std::move(push),
                   .sent = std::vector<SentPush>(shards_.size()),
                   .pulled = std::vector<bool>(shards_.size())};
}

void Exchange::Ready(uint64_t from) {
  if (leaving_ || !failure_.ok()) return;
  for (Peer& peer : peers_) {
    if (!peer.stream->open() || peer.memory_agreed) continue;
    std::vector<Outgoing> items;
    for (auto id = peer.shards.rbegin(); id != peer.shards.rend(); ++id) {
      const ShardInfo& shard = shards_[id->value()].info;
      SentPush& sent = open_->sent[id->value()];
      if (shard.begin < from) break;
      const auto values = open_->push.values.subspan(shard.begin, PushedEnd(shard) - shard.begin);
      if (sent.early || values.empty() || AsBytes(values).size() < options_.early_bytes_min) continue;
      SubPush push = OpenPush(*id, open_->sequence, values);
      push.loans = open_->push.loans;
      AppendValues(push, sent, peer, items);
      sent.early = true;
    }
    Send(peer, std::move(items));
  }
}

void Exchange::CommitStep(const PushInfo& info, absl::Span<float> parameters) {
  if (leaving_ || !failure_.ok()) return;
  SLACKLINE_CHECK(open_);
  for (const Peer& peer : peers_) {
    if (!peer.stream->open()) continue;
    const absl::Status takes = CheckTakesRates(info, peer.minor);
    if (takes.ok()) continue;
    return Fail(absl::Status(takes.code(), absl::StrCat(watch_.name(peer.stream->index()), ": ", takes.message())));
  }
  const std::vector<Session::Send> sends = session_.BeginStep();
  open_->info = info;
  open_->parameters = parameters;
  open_->committed = time_.Now();
  steps_.push_back(*std::exchange(open_, std::nullopt));
  SendAll(sends);
}

Exchange::InFlight* Exchange::FindStep(uint64_t sequence) {
  for (InFlight& step : steps_) {
    if (step.sequence.value() == sequence) return &step;
  }
  return nullptr;
}

void Exchange::ForgetPush(ShardId shard, InFlight& step, bool settled) {
  const std::shared_ptr<PushEncoder::Push> encoded = std::exchange(step.sent[shard.value()].encoded, nullptr);
  if (encoded == nullptr) return;
  // Usually all of it has gone out. What has not must not be encoded any more: the trainer takes its memory back.
  peers_[shards_[shard.value()].peer].stream->DropQueuedPush(shard, step.sequence);
  if (!settled) encoder_.Return(*encoded);
}

uint64_t Exchange::BytesOf(ShardId shard, const SentPush& sent) const {
  const ShardInfo& info = shards_[shard.value()].info;
  if (sent.encoded == nullptr) return (PushedEnd(info) - info.begin) * sizeof(float);
  uint64_t bytes = 0;
  for (const PushEncoder::Push::Chunk& chunk : sent.encoded->chunks()) {
    bytes += chunk.run.lossy() ? chunk.size : chunk.elements * sizeof(float);
  }
  return bytes;
}

void Exchange::ForgetEarly(absl::Span<const ShardId> shards) {
  for (ShardId id : shards) {
    if (open_) open_->sent[id.value()].early = false;
    for (InFlight& step : steps_) step.sent[id.value()].early = false;
  }
}

// --- Items ------------------------------------------------------------------------------------------------------

void Exchange::SendAll(absl::Span<const Session::Send> sends) {
  std::vector<std::vector<Session::Send>> by_peer(peers_.size());
  for (const Session::Send& send : sends) by_peer[shards_[send.shard.value()].peer].push_back(send);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (by_peer[i].empty() || !peers_[i].stream->open()) continue;  // Opened() says it all again
    std::vector<Outgoing> first, items;
    // Pulls wait for this worker's own push, so that each shard is served as soon as its push is answered, while those
    // of the others are still on their way.
    AppendPulls(by_peer[i], options_.averaged, first);
    const size_t pulls = first.size();
    // Backward finishes the last layers first, and those that are ready early have gone out so; forward needs the first
    // layers first, where it begins before all are there. Steps stay in their order.
    std::vector<Session::Send>& mine = by_peer[i];
    std::stable_sort(mine.begin(), mine.end(), [&](const Session::Send& a, const Session::Send& b) {
      if (options_.first_layers_first) return std::pair(a.clock, a.shard) < std::pair(b.clock, b.shard);
      return std::pair(a.clock, b.shard) < std::pair(b.clock, a.shard);
    });
    for (const Session::Send& send : mine) {
      if (send.push) AppendPushOf(send, peers_[i], first, items);
    }
    if (first.size() > pulls) {
      // Shards that lack only their trailers need not wait for the others, which are in the queue.
      peers_[i].stream->SendFirst(std::move(first));
    } else {
      // In one piece, so that small items share a frame.
      items.insert(items.begin(), std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
    }
    Send(peers_[i], std::move(items));
    if (options_.first_layers_first) peers_[i].stream->QueueFirstShardsFirst();
  }
}

void Exchange::AppendPushOf(const Session::Send& send, const Peer& peer, std::vector<Outgoing>& first,
                            std::vector<Outgoing>& items) {
  InFlight& step = *FindStep(send.push->value());
  SentPush& sent = step.sent[send.shard.value()];
  const ShardInfo& shard = shards_[send.shard.value()].info;
  SubPush push = GradientPush(send, step.info, step.push.values.subspan(shard.begin, PushedEnd(shard) - shard.begin));
  push.loans = step.push.loans;
  if (!sent.early) {
    AppendValues(push, sent, peer, items);
  } else if (!peer.stream->CommitQueuedPush(send.shard, *send.push, *push.trailer)) {
    AppendCommit(push, first);
  }
}

void Exchange::AppendValues(const SubPush& push, SentPush& sent, const Peer& peer, std::vector<Outgoing>& items) {
  const ShardInfo& shard = shards_[push.first.shard()].info;
  // Then there are no floats for the server to read.
  const bool on_device = encoder_.OnDevice(shard.begin, PushedEnd(shard));
  const std::optional<uint64_t> place = peer.memory_agreed && sent.encoded == nullptr && !on_device
                                            ? OffsetInSegment(options_.push_segment.get(), push.values)
                                            : std::nullopt;
  if (options_.trace.trace != nullptr) sent.begun = std::min(sent.begun, time_.Now());
  sent.plain |= place.has_value() || !encoder_.lossy() || push.values.empty();
  if (place) {
    AppendSharedPush(push, *place, items);
  } else if (sent.plain) {
    AppendPush(push, peer.chunk_bytes, items);
  } else {
    if (sent.encoded == nullptr) {
      const uint64_t chunk_bytes = on_device ? options_.chunk_bytes : peer.chunk_bytes;
      sent.encoded = std::make_shared<PushEncoder::Push>(encoder_.Cut(shard.begin, push.values, chunk_bytes));
    }
    AppendEncodedPush(push, encoder_, sent.encoded, items, options_.trace);
  }
}

void Exchange::SendSeeds(Peer& peer) {
  if (!peer.stream->open()) return;
  std::vector<Outgoing> items;
  for (ShardId id : peer.shards) {
    const Shard& shard = shards_[id.value()];
    if (!shard.seed_awaited) continue;
    peer.stream->DropQueuedPushes(id);
    SubPush push = SeedPush(id, request_->seed.subspan(shard.info.begin, shard.info.end - shard.info.begin));
    push.loans = request_->loans;
    AppendPush(push, peer.chunk_bytes, items);
  }
  Send(peer, std::move(items));
}

void Exchange::Send(Peer& peer, std::vector<Outgoing> items) {
  if (!peer.stream->open() || items.empty()) return;  // Opened() says it all again
  peer.stream->Send(std::move(items));
}

void Exchange::SayAgain(Peer& peer, absl::Span<const ShardId> shards) {
  std::vector<Session::Send> sends;
  ForgetEarly(shards);
  for (ShardId id : shards) {
    // What is left of the first attempt must not mix with the second.
    peer.stream->DropQueuedPushes(id);
    for (const Session::Send& send : session_.Connected(id)) sends.push_back(send);
  }
  if (request_ != nullptr && request_->kind == Request::Kind::kSeed) SendSeeds(peer);
  SendAll(sends);
}

}  // namespace slackline::worker

#include "bench/exchange/plain_pusher.h"

#include <algorithm>

namespace slackline::bench {
namespace {

constexpr uint64_t kChunkElements = (1 << 20) / sizeof(float);

absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

PlainPusher::PlainPusher(const worker::ShardMap& map, WorkerId worker, absl::Span<const float> gradient)
    : map_(map), gradient_(gradient), versions_(map.shards.size()) {
  for (const worker::ServerInfo& server : map_.servers) {
    streams_.push_back(std::make_unique<PlainStream>(map_, server, wire::ROLE_WORKER, worker.value()));
    for (const wire::ShardState& shard : streams_.back()->welcome().shards()) {
      versions_[shard.shard()] = shard.version();
    }
  }
}

void PlainPusher::Push() {
  ++sequence_;
  for (const worker::ShardInfo& shard : map_.shards) SendShard(shard);
  for (size_t server = 0; server < streams_.size(); ++server) {
    auto unanswered = std::count_if(map_.shards.begin(), map_.shards.end(), [&](const worker::ShardInfo& shard) {
      return shard.server == map_.servers[server].server;
    });
    while (unanswered > 0) {
      const wire::ServerFrame frame = streams_[server]->Receive();
      for (const wire::ServerItem& item : frame.items()) {
        if (!item.has_answer()) continue;
        versions_[item.answer().shard()] = item.answer().version();
        --unanswered;
      }
    }
  }
}

void PlainPusher::SendShard(const worker::ShardInfo& shard) {
  const auto server = std::find_if(map_.servers.begin(), map_.servers.end(),
                                   [&](const worker::ServerInfo& one) { return one.server == shard.server; });
  PlainStream& stream = *streams_[static_cast<size_t>(server - map_.servers.begin())];
  for (uint64_t begin = shard.begin; begin < shard.end; begin += kChunkElements) {
    const uint64_t end = std::min(begin + kChunkElements, shard.end);
    wire::WorkerFrame frame = stream.Frame();
    wire::WorkerItem& item = *frame.add_items();
    item.set_payload_bytes(static_cast<uint32_t>((end - begin) * sizeof(float)));
    wire::PushChunk& chunk = *item.mutable_push();
    chunk.set_shard(shard.shard.value());
    chunk.set_sequence(sequence_);
    chunk.set_offset(begin - shard.begin);
    chunk.set_elements(end - begin);
    if (end == shard.end) {
      *chunk.mutable_commit()->mutable_base() = versions_[shard.shard.value()];
      chunk.mutable_commit()->set_samples(1);
      chunk.mutable_commit()->set_gradient_norm(1);
    }
    stream.Send(frame, BytesOf(gradient_.subspan(begin, end - begin)));
  }
}

}  // namespace slackline::bench

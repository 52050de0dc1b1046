// A worker that pushes the same gradient again and again and never pulls, which no client of ours does.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "bench/exchange/plain_stream.h"
#include "common/ids.h"
#include "worker/client/client.h"

namespace slackline::bench {

// Thread-safety: none.
// Ownership:     borrows the map and the gradient.
class PlainPusher {
 public:
  PlainPusher(const worker::ShardMap& map, WorkerId worker, absl::Span<const float> gradient);

  // One push to all shards, and the answers of all.
  void Push();

 private:
  void SendShard(const worker::ShardInfo& shard);

  const worker::ShardMap& map_;
  const absl::Span<const float> gradient_;
  std::vector<std::unique_ptr<PlainStream>> streams_;  // in the order of map.servers
  std::vector<wire::Version> versions_;                // in the order of map.shards
  uint64_t sequence_ = 0;
};

}  // namespace slackline::bench

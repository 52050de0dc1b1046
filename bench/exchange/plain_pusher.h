// A worker that pushes the same gradient repeatedly and never pulls. No real client behaves like this.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "bench/exchange/plain_stream.h"
#include "common/base/ids.h"
#include "worker/client/client.h"

namespace slackline::bench {

// Thread-safety: none.
// Ownership:     borrows the map and the gradient.
class PlainPusher {
 public:
  PlainPusher(const worker::ShardMap& map, WorkerId worker, absl::Span<const float> gradient);

  // Pushes once to all shards and waits for all answers.
  void Push();

 private:
  void SendShard(const worker::ShardInfo& shard);

  const worker::ShardMap& map_;
  const absl::Span<const float> gradient_;
  std::vector<std::unique_ptr<PlainStream>> streams_;  // same order as map.servers
  std::vector<wire::Version> versions_;                // same order as map.shards
  uint64_t sequence_ = 0;
};

}  // namespace slackline::bench

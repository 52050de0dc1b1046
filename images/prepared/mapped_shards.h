// MappedShards: shards that are mapped now, of a data set on demand. They change with each task.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "images/base/fetch_watch.h"
#include "images/prepared/prepared_shard.h"

namespace slackline::images {

// Thread-safety: safe, but for Fetch(), which one thread at a time calls.
class MappedShards final : public ShardSource {
 public:
  // Finds or fetches the file of a shard's pixels, and maps it.
  using Map = std::function<absl::StatusOr<MappedShard>(size_t shard, const FetchWatch& watch)>;

  // `names`: names of the files, for errors.
  MappedShards(std::vector<std::string> names, Map map)
      : names_(std::move(names)), map_(std::move(map)), table_(names_.size()) {}

  // Returns a shard of the last Fetch(). It stays mapped as long as the result exists.
  //   kFailedPrecondition  the last Fetch() did not want it
  absl::StatusOr<std::shared_ptr<const MappedShard>> Open(size_t shard) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets go of all shards that are not `wanted`, so that a cache may remove their files, and maps those that are.
  //   as `map`; the wanted shards that were mapped before stay so
  absl::Status Fetch(const std::vector<bool>& wanted, const FetchWatch& watch) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool spread() const override { return false; }

 private:
  const std::vector<std::string> names_;
  const Map map_;
  mutable absl::Mutex mutex_;
  // The shards by number; null: not mapped.
  std::vector<std::shared_ptr<const MappedShard>> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::images

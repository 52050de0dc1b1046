// SpreadShards: the training images of a node that keeps only a part of them (data.cache.spread).
//
// The files of pixels are spread over the nodes of a job. This node keeps its share in its cache, within the cache's
// size: a thread gets the files one after the other while training goes on. An image of another node's file is trained
// on from memory: the file is borrowed from that node, or, if no node has it, read from the folder or the server.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "images/prepared/image_peers.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_shard.h"
#include "images/prepared/prepared_store.h"

namespace slackline::images {

// Thread-safety: safe.
// Ownership:     borrows the peers of the store's options, which outlive this object.
// Threads:       one, which gets this node's share.
// Limits:        kBorrowedMax files in memory, and those that a caller of Open() still holds.
class SpreadShards : public ShardSource {
 public:
  static constexpr size_t kBorrowedMax = 2;

  struct Parts {
    PreparedStoreOptions store;
    // Files of the split. File i of the peers' list is shards[i].images.
    std::vector<PreparedShard> shards;
    PreparedIndex index;
    // Files that must stay in the cache as long as this object exists: those that every node gets and serves.
    std::vector<HeldFile> held = {};
    // True to compare the pixels of each file that comes here with what index.json allows.
    bool verify = false;
    // Set by Stop(); the stores borrow it.
    std::unique_ptr<std::atomic<bool>> stop = std::make_unique<std::atomic<bool>>(false);
  };

  // Begins to get this node's share.
  //   as PreparedStore::Open()
  static absl::StatusOr<std::shared_ptr<SpreadShards>> Begin(Parts parts);
  ~SpreadShards() override;

  // Returns the pixels of a shard: a copy that this node keeps, or a file in memory.
  absl::StatusOr<std::shared_ptr<const MappedShard>> Open(size_t shard) override ABSL_LOCKS_EXCLUDED(getting_, mutex_);
  // Does nothing: Open() waits.
  absl::Status Fetch(const std::vector<bool>&, const FetchWatch&) override { return absl::OkStatus(); }
  bool spread() const override { return true; }
  // Makes calls of Open() that wait for a file, and later ones, return kCancelled.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the shards that are in memory only.
  std::vector<uint32_t> Borrowed() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the address by which the scheduler knows this node.
  const std::string& address() const { return peers_.address(); }

 private:
  using Shard = std::shared_ptr<const MappedShard>;

  SpreadShards(Parts parts, PreparedStore share_store, PreparedStore need_store);
  void GetShare() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gets the next file of the share. Returns the time after which to try again; 0 if there is more to get.
  absl::Duration GetNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes the copies that the cache has from before.
  void LookIntoCache() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a shard that is here; null if it is not.
  Shard Here(size_t shard) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gets a shard that is not here.
  absl::StatusOr<Shard> Get(size_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(getting_) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Shard> FromOrigin(size_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(getting_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps a shard whose file is in the cache, and serves it.
  absl::StatusOr<Shard> Keep(size_t shard, const HeldFile& held) ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps a shard in memory for a while.
  absl::StatusOr<Shard> Borrow(size_t shard, std::string file) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Check(const MappedShard& mapped, size_t shard) const;
  void SetFull(bool full) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsFull() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  ImagePeers& peers_;
  // Members of the thread.
  PreparedStore share_store_;
  bool asked_in_vain_ = false;
  absl::Mutex getting_ ABSL_ACQUIRED_BEFORE(mutex_);
  PreparedStore need_store_ ABSL_GUARDED_BY(getting_);
  mutable absl::Mutex mutex_;
  std::map<size_t, Shard> kept_ ABSL_GUARDED_BY(mutex_);
  // Shards in memory, the one that was used last in front.
  std::list<std::pair<size_t, Shard>> borrowed_ ABSL_GUARDED_BY(mutex_);
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::images

// Writes the snapshots of all shards of a server, one after the other, in the background while training goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/process/steady_flag.h"
#include "common/time/clock.h"
#include "ps/base/service_metrics.h"
#include "ps/service/mailbox.h"
#include "ps/store/snapshot_store.h"

namespace slackline::ps {

// Shard that keeps snapshots, and its store.
struct StoredShard {
  ShardId shard;
  std::filesystem::path folder;
  std::unique_ptr<SnapshotStore> store;  // null until it is opened
  // Opens the store.
  //   kAborted  the server that had the shard before still has the store open
  std::function<absl::StatusOr<std::unique_ptr<SnapshotStore>>()> open = nullptr;
};

// Writes each shard's snapshots at an interval.
//
// Thread-safety: safe, except for destruction.
// Threads:       one, born in the constructor, joined in the destructor (which waits for a snapshot that is being
//                written).
// Ownership:     borrows the mailbox, the metrics and the time.
class SnapshotKeeper {
 public:
  struct Options {
    // Time from the beginning of one snapshot of a shard to the beginning of the next.
    absl::Duration interval;
    // Longest wait for the sequencer. If it is exceeded, the snapshot is tried again after the same time, or after
    // `interval` if that is shorter.
    absl::Duration timeout;
    // Callbacks on the sequencer's thread. `take` returns no snapshot if the shard has no weights yet; Wake() says when
    // it may have some. `done` receives the outcome.
    std::function<std::optional<ShardSnapshot>(ShardId)> take;
    std::function<void(ShardId, const absl::StatusOr<KeptSnapshot>&)> done;
  };

  SnapshotKeeper(Options options, std::vector<StoredShard> shards, Mailbox& mailbox, ServiceMetrics& metrics,
                 const TimeSource& time);
  ~SnapshotKeeper();

  // Adds further shards.
  void Add(std::vector<StoredShard> shards) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops keeping snapshots of these shards here. Returns at once; a snapshot that is being written is finished first.
  void Remove(const std::vector<ShardId>& shards) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the keeper that a shard has received its weights.
  void Wake();
  // Makes the destructor write a last snapshot of each shard that has changed. Requires: by then nothing changes the
  // shards any more.
  void KeepAtEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the destructor delete all snapshots.
  void RemoveAtEnd() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    StoredShard stored;
    // Time of the next snapshot. Infinite past: the first is due as soon as there are weights.
    absl::Time due = absl::InfinitePast();
    bool failed = false;  // the last snapshot failed
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Stopped() ABSL_LOCKS_EXCLUDED(mutex_);
  // Applies the calls of Add() and Remove().
  void TakeChanges() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Open(Kept& kept);
  // Writes the snapshots that are due.
  void KeepAll();
  void KeepLast() ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(Kept& kept);
  absl::StatusOr<KeptSnapshot> Write(Kept& kept, const ShardSnapshot& snapshot);

  const Options options_;
  Mailbox& mailbox_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  SteadyFlag woken_;
  std::vector<Kept> shards_;  // belongs to the thread

  absl::Mutex mutex_;
  std::vector<StoredShard> added_ ABSL_GUARDED_BY(mutex_);
  std::vector<ShardId> removed_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool keep_ ABSL_GUARDED_BY(mutex_) = false;
  bool remove_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::ps

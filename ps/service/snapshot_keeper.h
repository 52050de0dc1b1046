// Writes the snapshots of all shards of a server, one after the other, beside the training.
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
#include "common/clock.h"
#include "common/ids.h"
#include "common/steady_flag.h"
#include "ps/service/mailbox.h"
#include "ps/service/service_metrics.h"
#include "ps/store/snapshot_store.h"

namespace slackline::ps {

// A shard that keeps snapshots.
struct StoredShard {
  ShardId shard;
  std::filesystem::path folder;
  std::unique_ptr<SnapshotStore> store;  // null: to be opened
  //   kAborted  whoever had the shard before has it open
  std::function<absl::StatusOr<std::unique_ptr<SnapshotStore>>()> open = nullptr;
};

// Thread-safety: safe, but for its destruction.
// Threads:       one, born in the constructor, joined in the destructor (which waits for a snapshot that is being
//                written).
// Ownership:     borrows the mailbox, the metrics and the time.
class SnapshotKeeper {
 public:
  struct Options {
    // From the beginning of one snapshot of a shard to that of the next.
    absl::Duration interval;
    // For the sequencer; then it is tried again after as much.
    absl::Duration timeout;
    // Both run on the sequencer's thread. No snapshot: the shard has no weights yet; Wake() says when it may have.
    std::function<std::optional<ShardSnapshot>(ShardId)> take;
    std::function<void(ShardId, const absl::StatusOr<KeptSnapshot>&)> done;
  };

  SnapshotKeeper(Options options, std::vector<StoredShard> shards, Mailbox& mailbox, ServiceMetrics& metrics,
                 const TimeSource& time);
  ~SnapshotKeeper();

  // Further shards.
  void Add(std::vector<StoredShard> shards) ABSL_LOCKS_EXCLUDED(mutex_);
  // These keep no snapshots here any more. Returns at once; what is being written is written first.
  void Remove(const std::vector<ShardId>& shards) ABSL_LOCKS_EXCLUDED(mutex_);
  // A shard has got its weights.
  void Wake();
  // In the destructor each shard that has changed is written once more. Nothing may change them any more by then.
  void KeepAtEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  // Deletes all snapshots in the destructor.
  void RemoveAtEnd() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    StoredShard stored;
    // Infinite past: the first one is due as soon as there are weights.
    absl::Time due = absl::InfinitePast();
    bool failed = false;  // the last one
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Stopped() ABSL_LOCKS_EXCLUDED(mutex_);
  // What was added and removed.
  void TakeChanges() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Open(Kept& kept);
  // What is due.
  void KeepAll();
  void KeepLast() ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(Kept& kept);
  absl::StatusOr<KeptSnapshot> Write(Kept& kept, const ShardSnapshot& snapshot);

  const Options options_;
  Mailbox& mailbox_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  SteadyFlag woken_;
  std::vector<Kept> shards_;  // the thread's

  absl::Mutex mutex_;
  std::vector<StoredShard> added_ ABSL_GUARDED_BY(mutex_);
  std::vector<ShardId> removed_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool keep_ ABSL_GUARDED_BY(mutex_) = false;
  bool remove_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::ps

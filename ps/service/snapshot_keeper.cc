#include "ps/service/snapshot_keeper.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "common/log/logging.h"

namespace slackline::ps {
namespace {

// While the server that had the shard before closes its store.
constexpr absl::Duration kOpenAgain = absl::Milliseconds(100);

}  // namespace

SnapshotKeeper::SnapshotKeeper(Options options, std::vector<StoredShard> shards, Mailbox& mailbox,
                               ServiceMetrics& metrics, const TimeSource& time)
    : options_(std::move(options)), mailbox_(mailbox), metrics_(metrics), time_(time) {
  for (StoredShard& stored : shards) shards_.push_back({.stored = std::move(stored)});
  woken_.Raise();  // restored shards have weights already
  thread_ = std::thread([this] { Run(); });
}

SnapshotKeeper::~SnapshotKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  woken_.Raise();
  thread_.join();
  if (!remove_) return;
  std::set<std::filesystem::path> folders;
  for (Kept& kept : shards_) {
    kept.stored.store.reset();
    folders.insert(kept.stored.folder.parent_path());
    std::error_code error;
    std::filesystem::remove_all(kept.stored.folder, error);
    if (error) log::Warning("could not remove the snapshots in ", kept.stored.folder.string(), ": ", error.message());
  }
  // Whoever is last takes the folder of all along; it is not empty before.
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    std::filesystem::remove(folder, error);
  }
}

void SnapshotKeeper::Add(std::vector<StoredShard> shards) {
  absl::MutexLock lock(&mutex_);
  // One that was removed before goes first.
  for (StoredShard& stored : shards) added_.push_back(std::move(stored));
  woken_.Raise();
}

void SnapshotKeeper::Remove(const std::vector<ShardId>& shards) {
  absl::MutexLock lock(&mutex_);
  for (const ShardId shard : shards) {
    std::erase_if(added_, [&](const StoredShard& stored) { return stored.shard == shard; });
    removed_.push_back(shard);
  }
  woken_.Raise();
}

void SnapshotKeeper::TakeChanges() {
  std::vector<StoredShard> added;
  std::vector<ShardId> removed;
  {
    absl::MutexLock lock(&mutex_);
    added.swap(added_);
    removed.swap(removed_);
  }
  std::erase_if(shards_, [&](const Kept& kept) {
    return std::find(removed.begin(), removed.end(), kept.stored.shard) != removed.end();
  });
  for (StoredShard& stored : added) shards_.push_back({.stored = std::move(stored)});
}

void SnapshotKeeper::Wake() { woken_.Raise(); }

void SnapshotKeeper::KeepAtEnd() {
  absl::MutexLock lock(&mutex_);
  keep_ = true;
}

void SnapshotKeeper::RemoveAtEnd() {
  absl::MutexLock lock(&mutex_);
  remove_ = true;
}

bool SnapshotKeeper::Stopped() {
  absl::MutexLock lock(&mutex_);
  return stop_;
}

void SnapshotKeeper::Run() {
  while (true) {
    absl::Time next = time_.Now() + options_.interval;
    for (const Kept& kept : shards_) {
      if (kept.due > absl::InfinitePast()) next = std::min(next, kept.due);
    }
    woken_.Take(next - time_.Now());
    if (Stopped()) break;
    TakeChanges();
    KeepAll();
  }
  TakeChanges();
  KeepLast();
}

void SnapshotKeeper::KeepLast() {
  {
    absl::MutexLock lock(&mutex_);
    if (!keep_ || remove_) return;
  }
  for (Kept& kept : shards_) Keep(kept);
}

void SnapshotKeeper::KeepAll() {
  for (Kept& kept : shards_) {
    if (Stopped()) return;
    if (kept.due <= time_.Now()) Keep(kept);
  }
}

bool SnapshotKeeper::Open(Kept& kept) {
  if (kept.stored.store != nullptr) return true;
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store = kept.stored.open();
  if (store.ok()) {
    kept.stored.store = *std::move(store);
    return true;
  }
  const bool in_use = absl::IsAborted(store.status());
  kept.due = time_.Now() + (in_use ? std::min(options_.interval, kOpenAgain) : options_.interval);
  if (!in_use && !std::exchange(kept.failed, true)) {
    log::Error(
        "shard ", kept.stored.shard.value(),
        ": cannot open the snapshots; training continues without new ones: ", std::string(store.status().message()));
    mailbox_.Post([done = options_.done, shard = kept.stored.shard, why = store.status()] { done(shard, why); });
  }
  return false;
}

void SnapshotKeeper::Keep(Kept& kept) {
  const ShardId shard = kept.stored.shard;
  if (!Open(kept)) return;
  const absl::Time begin = time_.Now();
  // What is posted may run when the keeper is gone.
  const auto taken = mailbox_.Ask<std::optional<ShardSnapshot>>([take = options_.take, shard] { return take(shard); },
                                                                options_.timeout);
  if (taken.ok() && !taken->has_value()) return;
  // A sequencer that is busy is asked again soon: somebody may wait for the first one.
  kept.due = taken.ok() ? begin + options_.interval : time_.Now() + std::min(options_.interval, options_.timeout);
  if (!taken.ok()) return;
  const std::vector<KeptSnapshot>& before = kept.stored.store->kept();
  if (!before.empty() && before.front().version == (*taken)->engine.version) return;
  const absl::StatusOr<KeptSnapshot> written = Write(kept, **taken);
  mailbox_.Post([done = options_.done, shard, written] { done(shard, written); });
}

absl::StatusOr<KeptSnapshot> SnapshotKeeper::Write(Kept& kept, const ShardSnapshot& snapshot) {
  const absl::Time begin = time_.Now();
  absl::StatusOr<KeptSnapshot> written = kept.stored.store->Write(snapshot);
  metrics_.snapshot_seconds.Observe(absl::ToDoubleSeconds(time_.Now() - begin));
  metrics_.snapshot_disk.Look(kept.stored.folder);
  // A full disk stays full for long: once is enough.
  if (written.ok() && kept.failed) {
    log::Info("shard ", kept.stored.shard.value(), ": this server writes snapshots again");
  } else if (!written.ok() && !kept.failed) {
    log::Error("shard ", kept.stored.shard.value(),
               ": cannot write a snapshot; training continues without it: ", std::string(written.status().message()));
  }
  kept.failed = !written.ok();
  return written;
}

}  // namespace slackline::ps

// Stores the snapshots of one shard, in a folder with a RocksDB of its own.
//
// The arrays of a snapshot are written to files, block by block from the memory where they lie, and the database takes
// the files in as they are. Then one small synced batch, the manifest, makes the snapshot valid: after a crash the
// snapshot is there as a whole or not at all. Keys contain the number of the snapshot, so that nothing is ever
// overwritten; old snapshots are deleted file by file, without compaction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/database.h"
#include "ps/store/snapshot.h"
#include "snapshot.pb.h"

namespace slackline::ps {

struct StoreOptions {
  // Folder of the store, made with its parents. One process at a time may have it open.
  std::filesystem::path folder;
  // Number of snapshots kept, the newest ones; at least 1.
  size_t keep = 2;
  // Approximate size of a file of arrays, in bytes; a larger snapshot has several files.
  uint64_t file_bytes = 256 << 20;
  // File system; see Database::Open().
  rocksdb::Env* disk = nullptr;
  // Replacement for Database::Open(), for tests; null: Database::Open().
  std::function<absl::StatusOr<std::unique_ptr<Database>>(const std::filesystem::path& folder)> open = nullptr;
};

// Writes, lists and reads the snapshots of one shard.
//
// Thread-safety: none.
class SnapshotStore {
 public:
  // Opens the store. A snapshot whose manifest is broken is skipped, as if it had not been written.
  //   kFailedPrecondition  the folder belongs to another job or shard, or to another version of this program
  //   kResourceExhausted   the disk is full
  //   kDataLoss            nothing in the folder can be read
  //   kAborted             another process has the folder open
  //   kUnavailable         the disk fails otherwise
  static absl::StatusOr<std::unique_ptr<SnapshotStore>> Open(const StoreOptions& options,
                                                             const ShardIdentity& identity);
  ~SnapshotStore();

  // Writes a snapshot. When it returns, the snapshot would survive a loss of power, and snapshots beyond `keep` are
  // deleted.
  //   kResourceExhausted, kUnavailable  as in Open(): nothing is changed, and a later call may succeed
  absl::StatusOr<KeptSnapshot> Write(const ShardSnapshot& snapshot);

  // Snapshots that are kept, newest first.
  const std::vector<KeptSnapshot>& kept() const { return kept_; }

  // Fills a shard that has no weights yet from a snapshot, and returns its engine's state.
  //   kNotFound   no such snapshot
  //   kDataLoss   names the missing or broken part; the shard must then not be used
  absl::StatusOr<EngineState> Read(uint64_t id, ShardState& shard) const;

 private:
  SnapshotStore(const StoreOptions& options, const ShardIdentity& identity, std::unique_ptr<Database> database);
  absl::StatusOr<snapshot::Manifest> ParseManifest(absl::string_view bytes) const;
  absl::StatusOr<snapshot::Manifest> FindManifest(uint64_t id) const;
  absl::Status LoadManifests();
  // Writes the arrays and returns their size in bytes.
  absl::StatusOr<uint64_t> WriteArrays(uint64_t id, const ShardView& numbers);
  // Deletes snapshots beyond those that are kept, and arrays without a manifest.
  absl::Status Trim();

  const StoreOptions options_;
  const ShardIdentity identity_;
  const std::unique_ptr<Database> database_;
  std::vector<KeptSnapshot> kept_;
  uint64_t next_ = 1;
};

}  // namespace slackline::ps

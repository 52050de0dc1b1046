// The snapshots of one shard, in a folder that a RocksDB has for itself.
//
// The arrays of a snapshot are written to files, block by block from the memory where they lie, and the database takes
// the files in as they are. Then one small synced batch, the manifest, makes the snapshot true: after a crash it is
// there whole or it is not there. Keys carry the number of the snapshot, so that nothing is ever overwritten, and what
// is too old goes file by file, without compaction.
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
  // Is made, with its parents. One process at a time.
  std::filesystem::path folder;
  // Snapshots kept, the newest ones; at least 1.
  size_t keep = 2;
  // Bytes of a file of arrays, about; a snapshot of more has several.
  uint64_t file_bytes = 256 << 20;
  // As Database::Open() has it.
  rocksdb::Env* disk = nullptr;
  // In the place of Database::Open(), for tests; null: that.
  std::function<absl::StatusOr<std::unique_ptr<Database>>(const std::filesystem::path& folder)> open = nullptr;
};

// Thread-safety: none.
class SnapshotStore {
 public:
  // A snapshot whose manifest is broken is passed over, as if it had not been written.
  //   kFailedPrecondition  the folder belongs to another job or shard, or to another version of this program
  //   kResourceExhausted   the disk is full
  //   kDataLoss            nothing that is there can be read
  //   kAborted             another process has the folder open
  //   kUnavailable         the disk fails otherwise
  static absl::StatusOr<std::unique_ptr<SnapshotStore>> Open(const StoreOptions& options,
                                                             const ShardIdentity& identity);
  ~SnapshotStore();

  // Returns when the snapshot would survive a loss of power; older ones than are kept are gone then.
  //   kResourceExhausted, kUnavailable  as above: nothing is changed, and a later call may succeed
  absl::StatusOr<KeptSnapshot> Write(const ShardSnapshot& snapshot);

  // Newest first.
  const std::vector<KeptSnapshot>& kept() const { return kept_; }

  // Fills a shard that has no weights yet, and returns its engine's state.
  //   kNotFound   no such snapshot
  //   kDataLoss   names what of it is missing or broken; the shard is then not to be used
  absl::StatusOr<EngineState> Read(uint64_t id, ShardState& shard) const;

 private:
  SnapshotStore(const StoreOptions& options, const ShardIdentity& identity, std::unique_ptr<Database> database);
  absl::StatusOr<snapshot::Manifest> ParseManifest(absl::string_view bytes) const;
  absl::StatusOr<snapshot::Manifest> FindManifest(uint64_t id) const;
  absl::Status LoadManifests();
  // Returns their bytes.
  absl::StatusOr<uint64_t> WriteArrays(uint64_t id, const ShardView& numbers);
  // Removes what is older than what is kept, and arrays without a manifest.
  absl::Status Trim();

  const StoreOptions options_;
  const ShardIdentity identity_;
  const std::unique_ptr<Database> database_;
  std::vector<KeptSnapshot> kept_;
  uint64_t next_ = 1;
};

}  // namespace slackline::ps

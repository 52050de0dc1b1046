// A disk in memory that outlives processes. SnapshotStore keeps its snapshots in it instead of in RocksDB.
//
// The seam is Database (common/storage/database.h), an interface that exists for this purpose: RocksDB takes
// milliseconds to open and to sync, and a thousand worlds have tens of thousands of snapshots. SnapshotStore runs
// unchanged, with its manifests, its order of writing, its removals, and its treatment of broken data. RocksDB is
// replaced by a map, a lock, and the promise that broken data is refused (kDataLoss) and not handed out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/database.h"
#include "tests/world/events.h"

namespace slackline::world {

// Thread-safety: none.
class MemoryDisk {
 public:
  explicit MemoryDisk(bool no_checksums) : no_checksums_(no_checksums) {}

  // Opens the database in `folder` for this life. A database must not outlive the disk.
  //   kAborted  another life has it open
  absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& folder, LifeId life);

  // Makes every write of this life fail while `fail` is true.
  void Fail(LifeId life, bool fail) { fail ? void(failing_.insert(life)) : void(failing_.erase(life)); }
  // Makes the writes of this life have no effect after so many more of them.
  void StopAfter(LifeId life, uint64_t writes) { writes_left_[life] = writes; }
  // Ends a life: all that it had open is free.
  void Gone(LifeId life);
  // Spoils the newest snapshot in this folder, if there is an older one, as a power failure does on a disk that reports
  // writes as done too early. `which` chooses the block and the damage. Returns false if nothing was spoilt.
  bool Tear(const std::string& folder, uint64_t which);

 private:
  friend class MemoryDatabase;
  struct Value {
    std::string bytes;
    bool broken = false;
  };
  struct Folder {
    LifeId open = 0;
    std::map<std::string, Value> values;
  };

  absl::Status Writes(LifeId life);
  bool Effect(LifeId life);

  const bool no_checksums_;
  std::map<std::string, Folder> folders_;
  std::set<LifeId> failing_;
  std::map<LifeId, uint64_t> writes_left_;
};

}  // namespace slackline::world

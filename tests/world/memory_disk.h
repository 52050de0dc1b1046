// A disk in memory that outlives processes: what SnapshotStore keeps its snapshots in, in the place of RocksDB.
//
// The seam is Database (common/storage/database.h), which is an interface for this: RocksDB takes milliseconds to open
// and to sync, a thousand worlds have tens of thousands of snapshots. So all of SnapshotStore runs as it is, with its
// manifests, its order of writing, what it removes when, and what it makes of that which is broken. What stands for
// RocksDB here are a map, a lock, and the promise that what is broken is refused (kDataLoss) and not handed out.
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

  // For this life. A database must not outlive the disk.
  //   kAborted  another life has it open
  absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& folder, LifeId life);

  // Until then every write of this life fails.
  void Fail(LifeId life, bool fail) { fail ? void(failing_.insert(life)) : void(failing_.erase(life)); }
  // After so many more writes of this life none has any effect.
  void StopAfter(LifeId life, uint64_t writes) { writes_left_[life] = writes; }
  // The life is over: what it had open is free.
  void Gone(LifeId life);
  // Spoils the newest snapshot in this folder, if there is an older one: as a machine leaves it that loses power and
  // whose disk had said too early that it was done. False: there is none.
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

// RocksDB, as the stores of servers and the scheduler use it: a few keys that are synced one by one, and files of large
// values that are added and dropped as a whole. It has no compaction, no cache, and takes almost no memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace slackline {

// Errors of all calls:
//   kResourceExhausted  the disk is full
//   kDataLoss           the stored data is broken: a checksum, a length
//   kUnavailable        any other failure of the disk
//
// Thread-safety: none.
class Database {
 public:
  // Opens a RocksDB. Creates the folder if it does not exist.
  //   kAborted  another process has it open, and may be about to end
  // `disk` replaces the machine's disk in tests; it must outlive the database.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& folder,
                                                        rocksdb::Env* disk = nullptr);
  virtual ~Database() = default;

  virtual absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const = 0;
  // Called by ForEach() for all keys that begin with a letter, in their order.
  using Visit = std::function<void(absl::string_view key, absl::string_view value)>;
  virtual absl::Status ForEach(char letter, const Visit& visit) const = 0;
  // Set or delete a key. Return once the change survives a loss of power.
  virtual absl::Status PutSynced(absl::string_view key, absl::string_view value) = 0;
  virtual absl::Status DeleteSynced(absl::string_view key) = 0;
  // Rewrites the keys that begin with this letter, so that deleted ones take no space. For few keys.
  virtual absl::Status Tidy(char letter) = 0;
  // Deletes the files whose keys all lie in [begin, end), and frees their space on the disk.
  virtual absl::Status DropFiles(absl::string_view begin, absl::string_view end) = 0;

  // New files, for values that are much larger than their keys. Files that are not ingested leave nothing behind.
  class Files {
   public:
    virtual ~Files() = default;

    // Adds a value. Keys must rise from call to call, and lie before or after all keys in the database.
    virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
    // Syncs the files and makes them part of the database.
    virtual absl::Status Ingest() = 0;
  };
  // Returns a writer of new files, which borrows the database. It begins a new file after `bytes_max` bytes.
  virtual std::unique_ptr<Files> NewFiles(uint64_t bytes_max) = 0;
};

}  // namespace slackline

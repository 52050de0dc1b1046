// RocksDB as the stores of a server and of a scheduler use it: few keys, synced one by one, and files of large values
// that are taken in whole and dropped whole. No compaction, no cache, next to no memory.
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
//   kDataLoss           what is there is broken: a checksum, a length
//   kUnavailable        the disk fails otherwise
//
// Thread-safety: none.
class Database {
 public:
  // A RocksDB. Makes the folder where there is none.
  //   kAborted  another process has it open; it may be about to end
  // `disk`: other than the machine's, for tests; outlives the database.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& folder,
                                                        rocksdb::Env* disk = nullptr);
  virtual ~Database() = default;

  virtual absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const = 0;
  // All keys that begin with this letter, in their order.
  using Visit = std::function<void(absl::string_view key, absl::string_view value)>;
  virtual absl::Status ForEach(char letter, const Visit& visit) const = 0;
  // Return when the change would survive a loss of power.
  virtual absl::Status PutSynced(absl::string_view key, absl::string_view value) = 0;
  virtual absl::Status DeleteSynced(absl::string_view key) = 0;
  // Rewrites the keys that begin with this letter, so that those which were deleted take no place. For few keys.
  virtual absl::Status Tidy(char letter) = 0;
  // Files whose keys all lie in [begin, end) are deleted, and their place on the disk is free again.
  virtual absl::Status DropFiles(absl::string_view begin, absl::string_view end) = 0;

  // New files, for values that are much larger than their keys. What is not ingested leaves nothing behind.
  class Files {
   public:
    virtual ~Files() = default;

    // Keys must rise from call to call, and lie behind or before all that are in the database.
    virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
    // Syncs the files and makes them part of the database.
    virtual absl::Status Ingest() = 0;
  };
  // They borrow the database. `bytes_max`: after so many a new file is begun.
  virtual std::unique_ptr<Files> NewFiles(uint64_t bytes_max) = 0;
};

}  // namespace slackline

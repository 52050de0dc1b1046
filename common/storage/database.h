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
class DB;
class Env;
class SstFileWriter;
class Status;
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
  // Makes the folder where there is none.
  //   kAborted  another process has it open; it may be about to end
  // `disk`: other than the machine's, for tests; outlives the database.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::filesystem::path& folder,
                                                        rocksdb::Env* disk = nullptr);
  ~Database();

  absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const;
  // All keys that begin with this letter, in their order.
  absl::Status ForEach(char letter,
                       const std::function<void(absl::string_view key, absl::string_view value)>& visit) const;
  // Return when the change would survive a loss of power.
  absl::Status PutSynced(absl::string_view key, absl::string_view value);
  absl::Status DeleteSynced(absl::string_view key);
  // Rewrites the keys that begin with this letter, so that those which were deleted take no place. For few keys.
  absl::Status Tidy(char letter);
  // Files whose keys all lie in [begin, end) are deleted, and their place on the disk is free again.
  absl::Status DropFiles(absl::string_view begin, absl::string_view end);

  // New files, for values that are much larger than their keys. What is not ingested leaves nothing behind.
  class Files {
   public:
    // `bytes_max`: after so many a new file is begun.
    Files(Database& database, uint64_t bytes_max);
    ~Files();

    // Keys must rise from call to call, and lie behind or before all that are in the database.
    absl::Status Put(absl::string_view key, absl::string_view value);
    // Syncs the files and makes them part of the database.
    absl::Status Ingest();

   private:
    absl::Status Finish();

    Database& database_;
    const uint64_t bytes_max_;
    std::unique_ptr<rocksdb::SstFileWriter> writer_;
    uint64_t bytes_ = 0;  // in the open file
    std::vector<std::string> paths_;
  };

 private:
  Database(std::filesystem::path folder, std::unique_ptr<rocksdb::DB> database);
  // What has failed once, for want of space, is tried again.
  void Resume();

  const std::filesystem::path folder_;
  const std::unique_ptr<rocksdb::DB> database_;
};

}  // namespace slackline

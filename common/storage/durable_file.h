// A file that appears under its name only once all of it is on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace slackline {

// Errors of all calls name the file and the reason:
//   kResourceExhausted  the disk is full
//   kUnavailable        the file system refuses otherwise
//
// Thread-safety: none.
class DurableFile {
 public:
  explicit DurableFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {}
  // Removes the data if Commit() was not called.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Open();
  // Writes at the end of the previous Write().
  absl::Status Write(const void* data, size_t size);
  // Overwrites existing bytes, or writes beyond them.
  absl::Status WriteAt(uint64_t offset, const void* data, size_t size);
  // Gives the file its name. On return it survives a loss of power.
  absl::Status Commit();

 private:
  const std::string path_;
  const std::string temporary_;
  int descriptor_ = -1;
};

// Syncs a folder: files that were created, renamed or removed in it stay so after a loss of power.
absl::Status SyncFolder(const std::string& folder);

}  // namespace slackline

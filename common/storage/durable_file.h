// A file that appears under its name only when all of it is on the disk.
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
  // What was not committed leaves nothing behind.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Open();
  // Goes on where the last one ended.
  absl::Status Write(const void* data, size_t size);
  // Over what is there already, or beyond it.
  absl::Status WriteAt(uint64_t offset, const void* data, size_t size);
  // It is there from now on, also after a loss of power.
  absl::Status Commit();

 private:
  const std::string path_;
  const std::string temporary_;
  int descriptor_ = -1;
};

// What was made, renamed or removed in the folder survives a loss of power.
absl::Status SyncFolder(const std::string& folder);

}  // namespace slackline

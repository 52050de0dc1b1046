// Copies of files on the disk of a node, which its processes share, of all jobs.
//
//   FOLDER/lock                      held while room is made
//   FOLDER/CHECKSUM-BYTES-NAME       a copy, which is whole; its time of change is when it was used last
//   FOLDER/...part                   one in the making, or what is left of one
//   FOLDER/...lock                   held by the process that makes it
//
// Other files in the folder are not counted and not touched.
//
// Whoever may write in the folder may read the copies and take the locks: what is made in it is readable for the group
// where the folder is writable for the group, and for others likewise. In a folder that only its owner may write,
// copies keep the mode that they come with.
//
// A copy is locked (shared) by each process that uses it, and so outlives what others need room for. Where a process
// dies, the system lets its locks go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {

// A file that stays as long as this does.
struct HeldFile {
  std::string path;
  std::shared_ptr<const void> hold = nullptr;
};

// Thread-safety: safe; so is several processes' use of one folder.
class FileCache {
 public:
  struct Options {
    std::string folder;
    uint64_t bytes_max = 0;
    // For somebody else's making of a file to go on.
    absl::Duration patience = absl::Minutes(2);
  };
  // Makes the folder.
  //   kUnavailable  it cannot be made or written
  static absl::StatusOr<FileCache> Open(const Options& options);

  // Makes `file` whole at a path, which has a part of it, or nothing yet.
  using Fetch = std::function<absl::Status(const std::string& path)>;
  // The copy of `file`, made by `fetch` if there is none. Its checksum is compared when it is made: a copy with other
  // bytes is made once more.
  //   kResourceExhausted  there is no room beside what is in use; names both sizes. Or the disk is full
  //   kDataLoss           `fetch` makes other bytes
  //   kDeadlineExceeded   another process makes it, and has got no further for options.patience
  //   as `fetch`
  absl::StatusOr<HeldFile> Get(const PreparedFile& file, const Fetch& fetch) const;
  // The copy that is there already; nothing where there is none.
  std::optional<HeldFile> Find(const PreparedFile& file) const;

 private:
  explicit FileCache(const Options& options) : options_(options) {}

  std::string PathOf(const PreparedFile& file) const;
  // Removes copies, those that were not used for longest first, and makes an empty `part`, which counts from then on.
  absl::Status MakeRoom(const PreparedFile& file, const std::string& part) const;
  absl::Status Make(const PreparedFile& file, const std::string& path, const Fetch& fetch) const;

  const Options options_;
};

}  // namespace slackline::worker

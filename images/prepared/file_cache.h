// FileCache: copies of files on a node's disk, shared by the node's processes of all jobs.
//
//   FOLDER/lock                      held while room is made, and while a complete copy gets its name
//   FOLDER/CHECKSUM-BYTES-NAME       a complete copy; its modification time is the time of its last use
//   FOLDER/...part                   a copy in progress, or the rest of one
//   FOLDER/...lock                   held by the process that makes the copy
//
// Other files in the folder are not counted and not touched.
//
// Everyone who may write in the folder may also read the copies and take the locks: files are readable for the group if
// the folder is writable for the group, and likewise for others. In a folder that only its owner may write, copies keep
// the mode that they come with.
//
// Each process that uses a copy holds a shared lock on it, so that the copy is not removed when others need room. If a
// process crashes, the system releases its locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "images/base/fetch_watch.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

// A file that is not removed as long as this object exists.
struct HeldFile {
  std::string path;
  std::shared_ptr<const void> hold = nullptr;
};

// FileCache gets files into the folder and removes the copies that were not used for longest.
//
// Thread-safety: safe; several processes may use one folder.
class FileCache {
 public:
  struct Options {
    std::string folder;
    uint64_t bytes_max = 0;
    // Longest wait for another process that makes a copy and does not get further.
    absl::Duration patience = absl::Minutes(2);
  };
  // Opens a cache and creates its folder.
  //   kUnavailable  the folder cannot be created or written
  static absl::StatusOr<FileCache> Open(const Options& options);

  // Completes `file` at a path that holds a part of it, or nothing yet.
  using Fetch = std::function<absl::Status(const std::string& path)>;
  // Returns the copy of `file`, which `fetch` makes if it does not exist. The checksum is compared when a copy is made;
  // a copy with wrong bytes is made again.
  //   kResourceExhausted  the copies in use leave no room; names both sizes. Or the disk is full
  //   kDataLoss           `fetch` repeatedly makes wrong bytes
  //   kDeadlineExceeded   another process makes the copy, and has made no progress for options.patience
  //   as `fetch`, and `watch`, which ends a wait for another process and may be null
  absl::StatusOr<HeldFile> Get(const PreparedFile& file, const Fetch& fetch, const FetchWatch& watch = nullptr) const;
  // Returns an existing copy, or nullopt.
  std::optional<HeldFile> Find(const PreparedFile& file) const;

 private:
  explicit FileCache(const Options& options) : options_(options) {}

  std::string PathOf(const PreparedFile& file) const;
  // Removes the copies that were not used for longest until `file` has room. Then creates an empty `part`, which counts
  // as used room from then on.
  absl::Status MakeRoom(const PreparedFile& file, const std::string& part) const;
  // Makes the copy and holds it.
  absl::StatusOr<std::shared_ptr<const void>> Make(const PreparedFile& file, const std::string& path,
                                                   const Fetch& fetch) const;
  // Waits for the lock of the folder, which the result holds.
  absl::StatusOr<std::shared_ptr<const void>> LockFolder() const;
  // Gives a whole copy its name and holds it, while nobody makes room: others would count neither name, or remove the
  // copy.
  absl::StatusOr<std::shared_ptr<const void>> NameCopy(const std::string& part, const std::string& path,
                                                       uint64_t bytes) const;

  const Options options_;
};

}  // namespace slackline::images

// RevokedNames: the workers whose certificates no longer count, from the file FOLDER/revoked.
//
//   revoked := { name LF }     Names are those of `slackline credentials --worker`.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::security {

std::string RevokedPath(const std::string& folder);

// Reads the names of a file. No file: no names.
//   kPermissionDenied  other users may write the file
//   kInvalidArgument   a line is no name; names the line
absl::StatusOr<std::set<std::string>> ReadRevoked(const std::string& path);

// RevokedNames reads the file again when it has changed, so that a name counts without a restart. If the file cannot be
// read then, or is removed, the names before stay revoked, and the log says so.
//
// Thread-safety: safe.
class RevokedNames {
 public:
  // Longest time until a new name counts.
  static constexpr absl::Duration kLookEvery = absl::Seconds(1);

  //   as ReadRevoked()
  static absl::StatusOr<std::shared_ptr<RevokedNames>> Open(const std::string& folder);

  bool Has(absl::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit RevokedNames(std::string path) : path_(std::move(path)) {}
  // Reads the file if it is another one than the last that was read.
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  absl::Mutex mutex_;
  absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Describes the file that was read last: its inode, size and time. Empty: no file.
  std::string version_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::security

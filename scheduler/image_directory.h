// Which nodes hold which files of the images, and who is to get which one next, so that each file comes from where the
// job file says once, and from then on from a node that has it (docs/adr/0049-nodes-serve-each-other.md).
//
// Whoever asks gets the file that the fewest hold. One that nobody holds is given to one node, and while that gets it
// the others are not sent to its origin: until it has it, is silent for too long, or takes longer than it may. No file
// and no clock is read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// Thread-safety: safe.
class ImageDirectory {
 public:
  struct Options {
    // Of a node, until it counts as gone.
    absl::Duration silence_max;
    absl::Duration retry = absl::Milliseconds(100);
    size_t nodes_max = 4096;
    uint32_t files_max = 1 << 17;
  };

  explicit ImageDirectory(const Options& options) : options_(options) {}

  //   as scheduler.proto says of FindImages; the job's fingerprint is not looked at
  absl::StatusOr<wire::FindImagesReply> Ask(const wire::FindImagesRequest& request, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What a node gets now.
  struct Task {
    uint32_t file = 0;
    std::string from;  // empty: the origin
    absl::Time until;
  };
  struct Node {
    std::string held;
    absl::Time heard;
    std::optional<Task> task;

    bool Holds(uint32_t file) const { return (held[file / 8] >> (file % 8) & 1) != 0; }
  };

  absl::Status Check(const wire::FindImagesRequest& request) const;
  // What the node holds from now on.
  void Know(Node& node, const std::string& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetTheSilent(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For `asker`, whose node is in the table.
  std::optional<Task> Choose(const wire::FindImagesRequest& request, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The one of `holders` that serves the fewest now.
  std::string LeastBusy(const std::vector<const std::string*>& holders) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  // Of which files the table is; 0 files before the first question.
  uint64_t files_checksum_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t files_ ABSL_GUARDED_BY(mutex_) = 0;
  // How many nodes hold each file.
  std::vector<uint32_t> holders_ ABSL_GUARDED_BY(mutex_);
  // By address.
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler

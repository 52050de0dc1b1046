// Knows which nodes hold which image files, and decides which file a node gets next: each file comes once from the
// place that the job file names, and from then on from a node that has it (docs/adr/0049-nodes-serve-each-other.md).
//
// A node that asks gets the file that the fewest nodes hold. A file that no node holds is given to one node. While that
// node gets it, the others are not sent to its origin, until the node has the file, is silent for too long, or takes
// longer than it may. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// Thread-safety: none.
class ImageDirectory {
 public:
  struct Options {
    // Silence after which a node counts as gone.
    absl::Duration silence_max;
    absl::Duration retry = absl::Milliseconds(100);
    size_t nodes_max = 4096;
    uint32_t files_max = 1 << 17;
  };

  explicit ImageDirectory(const Options& options) : options_(options) {}

  // Answers FindImages, with the errors of scheduler.proto. Does not look at the job's fingerprint.
  absl::StatusOr<wire::FindImagesReply> Ask(const wire::FindImagesRequest& request, absl::Time now);

 private:
  // A file that a node is getting now.
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
  // Updates the table with what the node holds from now on.
  void Know(Node& node, const std::string& held);
  void ForgetTheSilent(absl::Time now);
  // Chooses the next file for the node that asks, which is in the table; nullopt if there is none.
  std::optional<Task> Choose(const wire::FindImagesRequest& request, absl::Time now) const;
  // Returns the address among `holders` of the node that serves the fewest others now.
  std::string LeastBusy(const std::vector<const std::string*>& holders) const;

  const Options options_;
  // Files that the table is about; 0 files before the first question.
  uint64_t files_checksum_ = 0;
  uint32_t files_ = 0;
  // Number of nodes that hold each file.
  std::vector<uint32_t> holders_;
  // Nodes by address.
  std::map<std::string, Node> nodes_;
};

}  // namespace slackline::scheduler

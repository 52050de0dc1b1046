// Knows which nodes hold which image files, and decides which file a node gets next: each file comes once from the
// place that the job file names, and from then on from a node that has it (docs/adr/0049-nodes-serve-each-other.md).
//
// A node that asks gets the file that the fewest nodes hold. A file that no node holds is given to one node. While that
// node gets it, the others are not sent to its origin, until the node has the file, is silent for too long, or takes
// longer than it may.
//
// Spread files (data.cache.spread, docs/adr/0083-files-are-spread-over-nodes.md) are the first ones of the list. Each
// is kept by one node. A node that asks for its share gets a file that no node holds, up to an equal share of the
// files; more only if the others are full or have their shares. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// Thread-safety: none.
class ImageDirectory {
 public:
  // Distance of a spread file from a worker that is to train on it: less is better.
  enum Distance : uint8_t {
    kHere = 0,
    kComing = 1,           // on its way to the worker's node
    kFree = 2,             // no node has it, and the worker's node has room
    kElsewhere = 3,        // another node has it
    kComingElsewhere = 4,  // on its way to another node
    kOnlyAtTheOrigin = 5,  // no node has it, and the worker's node is full
  };

  struct Options {
    // Silence after which a node counts as gone.
    absl::Duration silence_max;
    absl::Duration retry = absl::Milliseconds(100);
    // Time after which a node asks again for a share of the spread files, if it got none.
    absl::Duration share_retry = absl::Seconds(1);
    // Number of nodes that the job expects. Shares are equal among so many, or among those that are here if these are
    // more.
    size_t nodes_expected = 1;
    size_t nodes_max = 4096;
    uint32_t files_max = 1 << 17;
  };

  explicit ImageDirectory(const Options& options) : options_(options) {}

  // Answers FindImages, with the errors of scheduler.proto. Does not look at the job's fingerprint.
  absl::StatusOr<wire::FindImagesReply> Ask(const wire::FindImagesRequest& request, absl::Time now);

  // Returns the distance of each spread file from the worker at `address`, which has the files `borrowed` in memory.
  // Empty if the worker or its files are not known.
  std::vector<uint8_t> DistancesFrom(const std::string& address, absl::Span<const uint32_t> borrowed,
                                     absl::Time now) const;

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
    std::optional<Task> task;   // file that it gets because every node does
    std::optional<Task> share;  // spread file that it gets to keep
    std::optional<Task> need;   // spread file that it needs now
    size_t shares = 0;          // number of spread files that it holds
    bool full = false;

    // Returns the spread files that come from the origin to be kept here. A full node keeps none.
    std::vector<uint32_t> Coming(absl::Time now) const;
    bool Holds(uint32_t file) const { return (held[file / 8] >> (file % 8) & 1) != 0; }
  };

  absl::Status Check(const wire::FindImagesRequest& request) const;
  // Updates the table with what the node holds from now on.
  void Know(Node& node, const std::string& held);
  void ForgetTheSilent(absl::Time now);
  // Chooses the next file for the node that asks, which is in the table; nullopt if there is none.
  std::optional<Task> Choose(const wire::FindImagesRequest& request, absl::Time now) const;
  // Chooses a spread file for the node that asks to keep; nullopt if there is none for it.
  std::optional<Task> ChooseShare(const wire::FindImagesRequest& request, absl::Time now) const;
  // Returns where the node that asks gets the spread file that it needs; nullopt while another node reads it from the
  // origin.
  std::optional<Task> Locate(const wire::FindImagesRequest& request, absl::Time now) const;
  // Returns a file that the node that asks, which is full, shares with others, if some file has no holder.
  std::optional<uint32_t> ChooseDrop(const Node& asker, absl::Time now) const;
  // Returns the spread files that are on their way from the origin to a node other than `address`.
  std::set<uint32_t> OnTheirWay(const std::string& address, absl::Time now) const;
  size_t ShareMax() const;
  // Answers the parts of the question that are about spread files.
  void AnswerSpread(const wire::FindImagesRequest& request, absl::Time now, Node& node, wire::FindImagesReply& reply);
  // Returns the addresses of the nodes that hold `file`, but for the one that asks and those that it cannot reach.
  std::vector<const std::string*> HoldersOf(uint32_t file, const wire::FindImagesRequest& request) const;
  // Returns the address among `holders` of the node that serves the fewest others now.
  std::string LeastBusy(const std::vector<const std::string*>& holders) const;

  const Options options_;
  // Files that the table is about; 0 files before the first question.
  uint64_t files_checksum_ = 0;
  uint32_t files_ = 0;
  uint32_t spread_ = 0;
  // True once as many nodes have come as the job expects: the others then no longer leave room for one that is gone.
  bool all_came_ = false;
  // Number of nodes that hold each file.
  std::vector<uint32_t> holders_;
  // Nodes by address.
  std::map<std::string, Node> nodes_;
};

}  // namespace slackline::scheduler

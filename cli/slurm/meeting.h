// A folder in the run folder through which the launcher (`slackline slurm run`) and the nodes of an allocation exchange
// facts. Each file has one writer, which replaces it as a whole; readers poll it.
//
//   NODE.here      facts about the node, once it has started
//   plan.json      processes of each node, once all are there; a newer plan has a larger number
//   NODE.leaving   reason why the node must stop soon: SLURM has told it to
//   NODE.trouble   reason why the node's processes cannot continue
//   launcher.beat  number that rises as long as the launcher lives
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/slurm/node_plan.h"

namespace slackline::cli::slurm {

// Facts about a node that has started.
struct NodeFacts {
  Node node;
  // Address at which the other nodes reach this one.
  std::string address;
  // Id of the machine; equal for nodes that are one machine.
  std::string machine;
};

struct Plan {
  uint64_t number = 0;
  std::vector<NodeRoles> roles;
  // Command that replaces the worker's program, as in Share::script.
  std::vector<std::string> script = {};
  // Time for processes to leave by themselves, after which they are ended. Absent while the run goes on.
  std::optional<absl::Duration> end_within;
};

// Reads and writes the files of the folder.
//
// Thread-safety: none.
class Meeting {
 public:
  // Each attempt to run the job has its own folder ("17-0" is the first of job 17), so that the files of an earlier
  // attempt do not count.
  Meeting(const std::filesystem::path& run_folder, const std::string& attempt);
  explicit Meeting(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path run_folder() const { return folder_.parent_path().parent_path(); }

  // Makes the folder, which must be new.
  absl::Status Open() const;
  absl::Status Arrive(const NodeFacts& facts) const;
  absl::Status WritePlan(const Plan& plan) const;
  absl::Status Leave(const std::string& node, const std::string& reason) const;
  absl::Status Trouble(const std::string& node, const std::string& reason) const;

  absl::Status Beat(uint64_t number) const;

  // Returns the nodes that have started, by name.
  std::map<std::string, NodeFacts> Arrived() const;
  // Returns the newest plan; nullopt before the first one.
  std::optional<Plan> ReadPlan() const;
  // Returns the number of the launcher's last beat; 0 before the first.
  uint64_t LastBeat() const;
  // Returns the reasons of those `nodes` that have written one, by node.
  std::map<std::string, std::string> Leaving(const std::vector<std::string>& nodes) const {
    return Notes(nodes, ".leaving");
  }
  std::map<std::string, std::string> InTrouble(const std::vector<std::string>& nodes) const {
    return Notes(nodes, ".trouble");
  }

 private:
  // Reads files by name: a network file system shows a new file sooner than a new listing.
  std::map<std::string, std::string> Notes(const std::vector<std::string>& nodes, const std::string& ending) const;

  std::filesystem::path folder_;
};

// Heartbeat of the launcher, from its first moment on.
//
// Thread-safety: none.
// Ownership:     borrows the meeting.
class Pulse {
 public:
  explicit Pulse(const Meeting& meeting) : meeting_(meeting) {}

  // Beats once a second, however often it is called.
  void StillHere();

 private:
  const Meeting& meeting_;
  uint64_t beats_ = 0;
  absl::Time due_ = absl::InfinitePast();
};

}  // namespace slackline::cli::slurm

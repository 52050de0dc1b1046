// A folder in the run folder in which the nodes of an allocation and the one that launched them tell each other what
// they need to know. Each file has one writer, who replaces it as a whole; readers look again and again.
//
//   NODE.here      what the node is, once it is there
//   plan.json      who does what, once all are there; a newer plan has a larger number
//   NODE.leaving   why the node must stop soon: SLURM has told it to
//   NODE.trouble   why its processes cannot go on
//   launcher.beat  a number that rises as long as the launcher lives
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/node_plan.h"

namespace slackline::cli::slurm {

// What is known of a node that is there.
struct NodeFacts {
  scheduler::Node node;
  // At which others reach it.
  std::string address;
  // The same for nodes that are one machine.
  std::string machine;
};

struct Plan {
  uint64_t number = 0;
  std::vector<scheduler::NodeRoles> roles;
  // In the place of the worker's program, as Share has it.
  std::vector<std::string> script = {};
  // Processes are to leave by themselves within this time, then they are ended.
  std::optional<absl::Duration> end_within;
};

// Thread-safety: none.
class Meeting {
 public:
  // One for each attempt to run the job ("17-0" is the first of job 17): what an earlier one has left says nothing
  // about this one.
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

  // Those that are there, by name.
  std::map<std::string, NodeFacts> Arrived() const;
  // Nullopt before there is one.
  std::optional<Plan> ReadPlan() const;
  // 0 before the first.
  uint64_t LastBeat() const;
  // Reasons by node, of these.
  std::map<std::string, std::string> Leaving(const std::vector<std::string>& nodes) const {
    return Notes(nodes, ".leaving");
  }
  std::map<std::string, std::string> InTrouble(const std::vector<std::string>& nodes) const {
    return Notes(nodes, ".trouble");
  }

 private:
  // By name: a network file system shows a new file sooner than a new listing.
  std::map<std::string, std::string> Notes(const std::vector<std::string>& nodes, const std::string& ending) const;

  std::filesystem::path folder_;
};

// The launcher's sign of life, from its first moment on.
//
// Thread-safety: none.
// Ownership:     borrows the meeting.
class Pulse {
 public:
  explicit Pulse(const Meeting& meeting) : meeting_(meeting) {}

  // Called as often as one likes: beats once a second.
  void StillHere();

 private:
  const Meeting& meeting_;
  uint64_t beats_ = 0;
  absl::Time due_ = absl::InfinitePast();
};

}  // namespace slackline::cli::slurm

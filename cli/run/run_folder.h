// The folder that a run leaves behind, as far as the command line knows it.
//
//   job.yaml             the job, with every setting written out
//   scheduler.address    host:port of the scheduler, once it listens; the scheduler writes it
//   processes.json       the processes: name, role, process id, restarts, state
//   logs/NAME.log        output of each process
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slackline::cli {

struct ProcessRecord {
  std::string name;
  // "scheduler", "server" or "worker".
  std::string role;
  pid_t pid = 0;
  unsigned restarts = 0;
  // "running", or how the process ended.
  std::string state;
};

// Creates, reads and writes the folder of one run.
//
// Thread-safety: none.
class RunFolder {
 public:
  // Makes the folder and its parents.
  //   kAlreadyExists  the folder is not empty; a run never mixes with another
  //   kUnavailable    the system refused
  static absl::StatusOr<RunFolder> Create(const std::filesystem::path& path);

  // Same as Create(), for `path` or the first of PATH-2, PATH-3 ... that does not exist: two runs never get one folder.
  static absl::StatusOr<RunFolder> CreateUnused(const std::filesystem::path& path);

  // Same as Create(), but `path` may hold what a batch system has made before the run.
  static absl::StatusOr<RunFolder> CreateSubmitted(const std::filesystem::path& path);
  // True if a file or folder of this name may exist before the run: "lock", "lock.held", "script.json", "submit",
  // "nodes", or an earlier attempt.
  static bool MayPrecede(const std::string& name);

  // Opens the folder of a run that another process has begun, and that also has processes on this node. They are
  // recorded in processes-NODE.json.
  static absl::StatusOr<RunFolder> Join(const std::filesystem::path& path, const std::string& node);

  // Opens the folder of a run that is resumed. Removes the address in it, where no scheduler answers any more.
  //   kNotFound     there is no run
  //   kUnavailable  the system refused
  static absl::StatusOr<RunFolder> Reopen(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path job_file() const { return path_ / "job.yaml"; }
  std::filesystem::path address_file() const { return AddressFile(path_); }
  std::filesystem::path log(const std::string& name) const { return path_ / "logs" / (name + ".log"); }

  absl::Status WriteJob(const std::string& yaml) const;
  // Recreates a folder that somebody has removed.
  //   kUnavailable  the system refused
  absl::Status MakeAgain(const std::string& yaml) const;
  // Replaces the list of processes as a whole: readers see the old or the new one.
  absl::Status WriteProcesses(const std::vector<ProcessRecord>& processes) const;
  // Returns the scheduler's address, once it is there.
  absl::StatusOr<std::string> ReadAddress() const { return ReadAddressFile(path_); }

  // Returns the processes that processes.json lists; empty if it lists none or cannot be read.
  static std::vector<ProcessRecord> ReadProcesses(const std::filesystem::path& run);

  static std::filesystem::path AddressFile(const std::filesystem::path& run) { return run / "scheduler.address"; }
  //   kNotFound  not there yet, or no run folder
  static absl::StatusOr<std::string> ReadAddressFile(const std::filesystem::path& run);

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  static absl::StatusOr<RunFolder> Make(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string processes_ = "processes.json";
};

// Returns runs/NAME-YYYYmmdd-HHMMSS, in local time.
std::filesystem::path DefaultRunFolder(const std::string& name, absl::Time now);

}  // namespace slackline::cli

// The folder that a run leaves behind, as far as the command line knows it.
//
//   job.yaml             the job as resolved
//   scheduler.address    host:port of the scheduler, once it listens; the scheduler writes it
//   processes.json       who runs: name, role, process id, restarts, state
//   logs/NAME.log        what each process says
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
  // "running" or how it ended.
  std::string state;
};

// Thread-safety: none.
class RunFolder {
 public:
  // Makes the folder and what is above it.
  //   kAlreadyExists  there is something in it; a run never mixes with another
  //   kUnavailable    the system refused
  static absl::StatusOr<RunFolder> Create(const std::filesystem::path& path);

  // The same for `path` itself, or for the first of PATH-2, PATH-3 ... that nobody has: two runs never get one folder.
  static absl::StatusOr<RunFolder> CreateUnused(const std::filesystem::path& path);

  // The same for `path` itself, where what a batch system has made of it before the run may be in it.
  static absl::StatusOr<RunFolder> CreateSubmitted(const std::filesystem::path& path);
  // Whether that of this name is: "lock", "script.json", "submit", "nodes", or an earlier attempt.
  static bool MayPrecede(const std::string& name);

  // The folder of a run that somebody else has begun, and whose processes are here, too. Its processes are recorded in
  // processes-NODE.json.
  static absl::StatusOr<RunFolder> Join(const std::filesystem::path& path, const std::string& node);

  // The folder of a run that goes on. Nobody answers at the address that is in it any more, which is removed.
  //   kNotFound     there is no run
  //   kUnavailable  the system refused
  static absl::StatusOr<RunFolder> Reopen(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path job_file() const { return path_ / "job.yaml"; }
  std::filesystem::path address_file() const { return AddressFile(path_); }
  std::filesystem::path log(const std::string& name) const { return path_ / "logs" / (name + ".log"); }

  absl::Status WriteJob(const std::string& yaml) const;
  // After somebody has removed the folder.
  //   kUnavailable  the system refused
  absl::Status MakeAgain(const std::string& yaml) const;
  // Replaces processes.json as a whole: readers see the old or the new one.
  absl::Status WriteProcesses(const std::vector<ProcessRecord>& processes) const;
  // The scheduler's address, once it is there.
  absl::StatusOr<std::string> ReadAddress() const { return ReadAddressFile(path_); }

  // What processes.json says; none where it says nothing.
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

// runs/NAME-YYYYmmdd-HHMMSS in local time.
std::filesystem::path DefaultRunFolder(const std::string& name, absl::Time now);

}  // namespace slackline::cli

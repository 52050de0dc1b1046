// The process of a job of the service, which outlives the host that started it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/process.h"

namespace slackline::cli {

// A process in a session of its own. It holds a lock on a file with its process id, so that a later host finds it, and
// knows whether it still runs. The system releases the lock when the process and those that it has started are gone.
//
// Thread-safety: none.
class JobProcess {
 public:
  struct Spec {
    // Path of the program, and its arguments.
    std::vector<std::string> command;
    std::filesystem::path working_folder;
    // File for standard output and standard error; appended to.
    std::filesystem::path log;
    // File for the lock and a line that begins with the process id; an existing one is overwritten.
    std::filesystem::path file;
    // Environment, NAME=VALUE; empty: that of this process.
    std::vector<std::string> environment = {};
  };
  // Starts a process.
  //   kAlreadyExists  a process holds the lock on the file
  //   kNotFound       no such program, or no such folder
  //   kUnavailable    the system refused
  static absl::StatusOr<JobProcess> Start(const Spec& spec);
  // Returns the process that another host has started with this file; nullopt if none runs.
  static std::optional<JobProcess> Find(const std::filesystem::path& file);
  // Returns whether a process holds the lock on the file.
  static bool IsHeld(const std::filesystem::path& file);

  pid_t pid() const { return pid_; }
  // Returns whether the process has ended, and those that it has started, as far as they end within 10 s. Later ones
  // lose the lock.
  bool Gone();
  // How a process that is gone has ended; nullopt for one that another host has started.
  const std::optional<ProcessEnd>& end() const { return end_; }
  // Returns the last lines that a process of this host has written to its log; empty for one that another host has
  // started.
  std::string LastWords() const { return ours_ ? cli::LastWords(log_, log_begin_) : ""; }
  // Sends `signal` unless the process is gone.
  void Signal(int signal);

 private:
  JobProcess(std::filesystem::path file, pid_t pid, bool ours) : file_(std::move(file)), pid_(pid), ours_(ours) {}

  std::filesystem::path file_;
  std::filesystem::path log_ = {};
  int64_t log_begin_ = 0;
  pid_t pid_;
  // Time of its start, as /proc/PID/stat has it; empty for a child of this process.
  std::string start_ = {};
  bool ours_;  // a child of this process
  bool gone_ = false;
  // Time when the process was found to have ended.
  std::optional<absl::Time> ended_ = {};
  std::optional<ProcessEnd> end_;
};

}  // namespace slackline::cli

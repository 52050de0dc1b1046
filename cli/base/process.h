// A child process: started with its own log, watched, and ended by its process id.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slackline::cli {

struct ProcessSpec {
  // Name for messages.
  std::string name;
  // Path of the program, and its arguments.
  std::vector<std::string> command;
  // File for standard output and standard error. An existing file, for example of an earlier life, is appended to.
  std::filesystem::path log;
  // File for standard input.
  std::filesystem::path input = "/dev/null";
  // Environment, NAME=VALUE; empty: that of this process.
  std::vector<std::string> environment = {};
};

// End of a process.
struct ProcessEnd {
  bool by_signal = false;
  // Exit code, or number of the signal.
  int code = 0;

  // Returns the end that a status of waitpid(2) tells.
  static ProcessEnd FromWait(int status);

  bool ok() const { return !by_signal && code == 0; }
  // Examples: "exit code 1", "killed by signal 9 (Killed)".
  std::string Describe() const;
};

// Returns the last lines of a log that are not blank, oldest first, joined by newlines, and cut to a size that fits a
// message. Only what lies behind the first `begin` bytes counts. The text is UTF-8, whatever the log holds.
std::string LastWords(const std::filesystem::path& log, int64_t begin = 0, size_t lines_max = 5);

// A child process, which never outlives `slackline`.
//
// Thread-safety: none; one thread starts and watches all children. The kernel kills a child when that thread ends,
//                however `slackline` dies.
class Process {
 public:
  // Starts the child in a process group of its own: Ctrl-C on the terminal reaches only `slackline`, which then stops
  // its children in good order. The child ignores none of SIGINT, SIGTERM, SIGCHLD and SIGPIPE.
  //   kNotFound     no such program
  //   kUnavailable  the system refused
  static absl::StatusOr<Process> Start(ProcessSpec spec);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  // Kills and reaps a child that still runs.
  ~Process();

  const std::string& name() const { return spec_.name; }
  pid_t pid() const { return pid_; }

  // Returns how the process ended, or nullopt while it runs. Never waits. After the end, every call returns the same.
  std::optional<ProcessEnd> Poll();
  // Waits up to `timeout` for the end of the process.
  std::optional<ProcessEnd> WaitFor(absl::Duration timeout);

  // Sends `signal` unless the process has ended.
  void Signal(int signal);

  // Returns what the function above returns for the log, of what was written since this process started.
  std::string LastWords(size_t lines_max = 5) const { return cli::LastWords(spec_.log, log_begin_, lines_max); }

 private:
  Process(ProcessSpec spec, int64_t log_begin, pid_t pid) : spec_(std::move(spec)), log_begin_(log_begin), pid_(pid) {}
  void KillAndReap();

  ProcessSpec spec_;
  // Size of the log in bytes before this process started.
  int64_t log_begin_ = 0;
  // Process id; 0 after a move.
  pid_t pid_ = 0;
  std::optional<ProcessEnd> end_;
};

}  // namespace slackline::cli

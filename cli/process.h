// A child process: started with its own log, watched, and ended by its own number.
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
  // For messages; also the name of its log.
  std::string name;
  // Program (a path) and its arguments.
  std::vector<std::string> command;
  // Takes standard output and standard error; written on at its end if it exists, as that of an earlier life does.
  std::filesystem::path log;
};

// How a process ended.
struct ProcessEnd {
  bool by_signal = false;
  // Exit code, or number of the signal.
  int code = 0;

  bool ok() const { return !by_signal && code == 0; }
  // "exit code 1", "killed by signal 9 (Killed)".
  std::string Describe() const;
};

// Thread-safety: none; one thread starts and watches all children. The kernel kills a child when that thread ends,
//                so that nothing outlives `slackline`, however it dies.
class Process {
 public:
  // Starts it in a process group of its own: Ctrl-C on the terminal reaches `slackline` only, which then stops its
  // children in good order. It ignores none of SIGINT, SIGTERM, SIGCHLD and SIGPIPE.
  //   kNotFound     no such program
  //   kUnavailable  the system refused
  static absl::StatusOr<Process> Start(ProcessSpec spec);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  // A child that still runs is killed and reaped.
  ~Process();

  const std::string& name() const { return spec_.name; }
  pid_t pid() const { return pid_; }

  // How it ended, once it has; never waits. The same answer from then on.
  std::optional<ProcessEnd> Poll();
  // Waits up to `timeout` for its end.
  std::optional<ProcessEnd> WaitFor(absl::Duration timeout);

  // Sends `signal` unless it has ended.
  void Signal(int signal);

  // The last lines of its log that hold anything, oldest first, joined by newlines; cut to a size that fits a message.
  // Only what was written since it was started. UTF-8, whatever the log holds.
  std::string LastWords(size_t lines_max = 5) const;

 private:
  Process(ProcessSpec spec, int64_t log_begin, pid_t pid) : spec_(std::move(spec)), log_begin_(log_begin), pid_(pid) {}
  void KillAndReap();

  ProcessSpec spec_;
  // Bytes that were in its log before.
  int64_t log_begin_ = 0;
  // 0 after a move.
  pid_t pid_ = 0;
  std::optional<ProcessEnd> end_;
};

}  // namespace slackline::cli

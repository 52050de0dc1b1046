// One `slackline` at a time looks after a run.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace slackline::cli {

// A lock on the file "lock" of a run folder, which says who has it. The system gives it back when the process ends,
// however that happens. Where the file system knows no locks, there is none.
//
// Thread-safety: none.
class RunLock {
 public:
  //   kAlreadyExists  somebody has it: names whom
  //   kUnavailable    the file cannot be written
  static absl::StatusOr<RunLock> Take(const std::filesystem::path& run_folder);

  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}

  int fd_;  // -1 after a move
};

// Who looks after the run, as "process 123 on node1"; empty where nobody does.
std::string WhoRuns(const std::filesystem::path& run_folder);
// `slackline` looks after it on this machine.
bool RunsHere(const std::filesystem::path& run_folder);
// Who was the last to do so, whether he still does or not; empty where nobody ever did: it was started by hand.
std::string WhoRan(const std::filesystem::path& run_folder);

}  // namespace slackline::cli

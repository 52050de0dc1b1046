// One `slackline` at a time looks after a run.
#pragma once

#include <sys/file.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace slackline::cli {

// A lock on the file "lock" of a run folder, which says who has it. The system gives it back when the process ends,
// however that happens.
//
// Where the file system knows no locks (NFS before version 4 without lockd says ENOLCK, Lustre without -o flock
// ENOSYS), a file "lock.held" is there as long as the lock is held, which only one process can make. It outlives a
// process that is killed: whoever comes next takes it over if that process ran on his machine or in an earlier attempt
// of his job of SLURM, and is named what to remove otherwise.
//
// Thread-safety: none.
class RunLock {
 public:
  // flock(2), or a test's.
  using LockCall = int (*)(int fd, int operation);
  // Of a job of SLURM, which has one at a time; no job: outside of SLURM.
  struct Attempt {
    std::string job = {};
    uint64_t number = 0;
  };

  //   kAlreadyExists  somebody has it: names whom
  //   kUnavailable    the file cannot be written
  static absl::StatusOr<RunLock> Take(const std::filesystem::path& run_folder, const Attempt& attempt = {"", 0},
                                      LockCall lock = ::flock);

  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

  // Why a file stands for the lock; empty: it does not.
  const std::string& by_file() const { return by_file_; }

 private:
  explicit RunLock(int fd) : fd_(fd) {}

  int fd_;  // -1 after a move
  std::string by_file_;
  std::filesystem::path held_;  // the file, if it is ours
};

// Who looks after the run, as "process 123 on node1"; empty where nobody does.
std::string WhoRuns(const std::filesystem::path& run_folder, RunLock::LockCall lock = ::flock);
// `slackline` looks after it on this machine.
bool RunsHere(const std::filesystem::path& run_folder);
// Who was the last to do so, whether he still does or not; empty where nobody ever did: it was started by hand.
std::string WhoRan(const std::filesystem::path& run_folder);

}  // namespace slackline::cli

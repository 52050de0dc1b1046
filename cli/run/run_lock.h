// A lock that lets only one `slackline` at a time look after a run.
#pragma once

#include <sys/file.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace slackline::cli {

// A lock on the file "lock" of a run folder, which names the holder. The system releases the lock when the process
// ends, however that happens.
//
// Some file systems have no locks (NFS before version 4 without lockd reports ENOLCK, Lustre without -o flock ENOSYS).
// There, a file "lock.held", which only one process can make, exists as long as the lock is held. The file outlives a
// process that is killed. The next process takes it over if the killed one ran on the same machine or in an earlier
// attempt of the same SLURM job; otherwise the error names the file to remove.
//
// Thread-safety: none.
class RunLock {
 public:
  // flock(2), or a test's replacement.
  using LockCall = int (*)(int fd, int operation);
  // Attempt of SLURM to run a job, which has one attempt at a time. `job` is empty outside SLURM.
  struct Attempt {
    std::string job = {};
    uint64_t number = 0;
  };

  // Takes the lock.
  //   kAlreadyExists  another process has it; the message names the process
  //   kUnavailable    the file cannot be written
  static absl::StatusOr<RunLock> Take(const std::filesystem::path& run_folder, const Attempt& attempt = {"", 0},
                                      LockCall lock = ::flock);

  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

  // Reason why a file stands for the lock; empty if it does not.
  const std::string& by_file() const { return by_file_; }

 private:
  explicit RunLock(int fd) : fd_(fd) {}

  int fd_;  // -1 after a move
  std::string by_file_;
  std::filesystem::path held_;  // the file "lock.held", if it is ours
};

// Returns the process that looks after the run, as "process 123 on node1"; empty if none does.
std::string WhoRuns(const std::filesystem::path& run_folder, RunLock::LockCall lock = ::flock);
// True if a `slackline` on this machine looks after the run.
bool RunsHere(const std::filesystem::path& run_folder);
// Returns the process that looked after the run last, whether it still does or not. Empty if none ever did: the run was
// started by hand.
std::string WhoRan(const std::filesystem::path& run_folder);

}  // namespace slackline::cli

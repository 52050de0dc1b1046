// Processes of one run: started by name, reaped, counted, and ended together.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/base/process.h"
#include "cli/base/signals.h"
#include "cli/run/run_folder.h"
#include "common/security/role.h"

namespace slackline::cli {

// Starts, reaps and stops the processes of one run.
//
// Thread-safety: none.
// Ownership:     borrows `folder` and `signals` while it lives. No process outlives it.
class Crew {
 public:
  // A process that has ended since the last Reap().
  struct End {
    security::Role role;
    std::string name;
    pid_t pid;
    ProcessEnd how;
    std::string last_words;

    // Example: "worker-2 (process 123) died: killed by signal 9 (Killed); its last words:\n  ..."
    std::string Describe() const;
  };

  Crew(const RunFolder& folder, SignalQueue& signals) : folder_(folder), signals_(signals) {}

  // Starts `command` under `name`. If a process of that name has ended before, the start counts as its restart.
  absl::Status Start(security::Role role, const std::string& name, std::vector<std::string> command);
  // Returns the processes that have ended since the last call, in the order in which their names first started.
  std::vector<End> Reap();
  // Kills the process at once, if it runs. Reap() reports its end.
  void Kill(const std::string& name);
  // Number of processes of `role` whose end Reap() has not reported yet. Unlike Running(), it agrees with what Reap()
  // has reported.
  size_t Watched(security::Role role) const;
  // Number of processes, of `role` or of all roles, that run now.
  size_t Running(security::Role role);
  size_t Running();
  // Returns how the first crashed process of `role` has ended; empty if all run or have ended with code 0.
  std::string Crash(security::Role role);

  struct StopDeadlines {
    // Time for workers and servers to leave by themselves after the scheduler was told that the job is over. Zero if
    // there is nothing to wait for.
    absl::Duration leave = absl::Seconds(10);
    // Time for workers to end their own work, instead of `leave`: scripts evaluate and save when the job is over. The
    // first stop signal ends this wait, and does not count for `impatient_at`.
    absl::Duration scripts = absl::ZeroDuration();
    // Called with the names of the workers that still run, once the wait for them is a long one. Not empty if `scripts`
    // is not zero.
    std::function<void(const std::string& names)> on_scripts = nullptr;
    // Time for the processes of each role to end after `signal`. Processes that are left after that get SIGKILL.
    absl::Duration terminate = absl::Seconds(5);
    // Signal that ends the processes.
    int signal = SIGTERM;
    // Number of the stop signal, counted from this call on, that ends all waiting.
    int impatient_at = 1;
  };
  // Ends all processes, workers before servers before the scheduler, and returns when none is left. The stop signal
  // with number `impatient_at` ends the waiting: processes that still run then are killed. Returns messages about
  // processes that were killed because they did not leave, and about scripts that failed or were ended.
  std::vector<std::string> Stop(const StopDeadlines& deadlines);

 private:
  struct Member {
    security::Role role;
    unsigned restarts = 0;
    bool reaped = false;
    // Process of the member, running or ended. `reaped` is false until Reap() has reported its end.
    Process process;
  };

  // Waits until no process of `roles` runs or the time is over. The last of signals_left_ ends all such waits.
  enum class Told { kByScheduler, kBySignal };  // source of the order to end
  void WaitForEnd(std::initializer_list<security::Role> roles, absl::Duration timeout, Told told);
  // Returns messages about scripts that failed, or that still run.
  std::vector<std::string> WaitForScripts(const StopDeadlines& deadlines);
  void SignalAll(security::Role role, int signal);
  void Record();

  const RunFolder& folder_;
  SignalQueue& signals_;
  std::list<Member> members_;
  int signals_left_ = 1;  // stop signals until all waiting ends
};

}  // namespace slackline::cli

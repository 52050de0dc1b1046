// The processes of one run: started by name, reaped, counted, and ended together.
#pragma once

#include <signal.h>

#include <initializer_list>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/process.h"
#include "cli/run_folder.h"
#include "cli/signals.h"

namespace slackline::cli {

enum class Role { kScheduler, kServer, kWorker };
// "scheduler", "server", "worker".
const char* RoleName(Role role);

// Thread-safety: none.
// Ownership:     borrows `folder` and `signals` while it lives. No process outlives it.
class Crew {
 public:
  // A process that has ended since the last Reap().
  struct End {
    Role role;
    std::string name;
    pid_t pid;
    ProcessEnd how;
    std::string last_words;

    // "worker-2 (process 123) died: killed by signal 9 (Killed); its last words:\n  ..."
    std::string Describe() const;
  };

  Crew(const RunFolder& folder, SignalQueue& signals) : folder_(folder), signals_(signals) {}

  // Starts `command` under `name`; a name that ended before is started again, and counted so.
  absl::Status Start(Role role, const std::string& name, std::vector<std::string> command);
  // Who has ended since the last call, in the order of their start.
  std::vector<End> Reap();
  // Kills it at once, if it runs; Reap() tells its end.
  void Kill(const std::string& name);
  // Processes of `role` whose end Reap() has not told yet. Unlike Running(), it agrees with what Reap() has said.
  size_t Watched(Role role) const;
  // Processes of `role` that run.
  size_t Running(Role role);
  size_t Running();

  struct StopDeadlines {
    // How long workers and servers may take to leave by themselves, because the scheduler was told that the job is
    // over; zero where there is nothing to wait for, ...
    absl::Duration leave = absl::Seconds(10);
    // ... and those of each role after SIGTERM; then SIGKILL.
    absl::Duration terminate = absl::Seconds(5);
    // What they are sent.
    int signal = SIGTERM;
    // The stop signal, counted from this call on, that ends all waiting.
    int impatient_at = 1;
  };
  // Ends all processes, workers before servers before the scheduler, and returns when none is left. Stop signals
  // meanwhile kill at once. Returns what had to be said: who was killed because it would not leave.
  std::vector<std::string> Stop(const StopDeadlines& deadlines);

 private:
  struct Member {
    Role role;
    unsigned restarts = 0;
    bool reaped = false;
    // Not reaped means that its end was not told yet.
    Process process;
  };

  // Waits until none of `roles` runs or the time is over; the last of signals_left_ ends all such waits.
  enum class Told { kByScheduler, kBySignal };  // to end
  void WaitForEnd(std::initializer_list<Role> roles, absl::Duration timeout, Told told);
  void SignalAll(Role role, int signal);
  void Record();

  const RunFolder& folder_;
  SignalQueue& signals_;
  std::list<Member> members_;
  int signals_left_ = 1;  // until all waiting ends
};

}  // namespace slackline::cli

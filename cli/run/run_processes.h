// Interface to the processes of a run, on this machine or on others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/run/crew.h"
#include "cli/run/scheduler_client.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Starts, watches and stops the processes of a run.
//
// Thread-safety: none.
class RunProcesses {
 public:
  struct News {
    // Crashes and restarts, for people.
    std::vector<std::string> lines;
    // Reason why the run cannot continue, unless the job has ended meanwhile. Empty while it can.
    std::string trouble;
    // True if the trouble may just be the end of the job, seen early: no process has failed.
    bool maybe_done = false;
  };

  virtual ~RunProcesses() = default;

  // Starts the processes. Returns once the scheduler has given its address.
  //   kDeadlineExceeded  a process was not there in time
  //   kAborted           a process died; its last words are in the message
  //   kCancelled         a stop signal came
  virtual absl::Status Start() = 0;

  // True once the scheduler has given its address; true whenever Start() was OK.
  virtual bool has_scheduler() const = 0;
  virtual SchedulerClient& scheduler() = 0;
  // True if the scheduler runs, or will be restarted.
  virtual bool scheduler_runs() = 0;
  // Returns how the present scheduler crashed or was killed; empty if it runs, or has ended in good order.
  virtual std::string SchedulerCrash() = 0;

  // Records whether the scheduler has just answered; a refusal is an answer. Watch() kills a scheduler that falls
  // silent, and restarts it.
  virtual void Heard(bool scheduler_answered) = 0;

  // Looks after the processes, and reports crashes to the scheduler. `status` is the scheduler's last answer; empty
  // before the first one.
  virtual News Watch(const wire::GetStatusReply& status) = 0;

  // Called a few times a second while the run lives, also while it is being stopped.
  virtual void StillHere() {}

  // Ends all processes. Returns messages for the user.
  virtual std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) = 0;
};

}  // namespace slackline::cli

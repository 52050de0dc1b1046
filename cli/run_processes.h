// The processes of a run, wherever they are.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/crew.h"
#include "cli/scheduler_client.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Thread-safety: none.
class RunProcesses {
 public:
  struct News {
    // Deaths and restarts, for people.
    std::vector<std::string> lines;
    // Why the run cannot go on, unless the job has ended meanwhile: empty while it can.
    std::string trouble;
    // The trouble may just be the end of the job that was seen early: nobody has failed.
    bool maybe_done = false;
  };

  virtual ~RunProcesses() = default;

  // Returns once the scheduler has given its address.
  //   kDeadlineExceeded  somebody was not there in time
  //   kAborted           somebody died; the last words are in the message
  //   kCancelled         a stop signal came
  virtual absl::Status Start() = 0;

  // Once the scheduler has given its address, which it has when Start() was OK.
  virtual bool has_scheduler() const = 0;
  virtual SchedulerClient& scheduler() = 0;
  virtual bool scheduler_runs() = 0;

  // Whether the scheduler has just answered, or at least refused: one that falls silent is killed by Watch() and
  // started again.
  virtual void Heard(bool scheduler_answered) = 0;

  // Looks after the processes, and reports deaths to the scheduler. `status` is the last that the scheduler said, empty
  // before.
  virtual News Watch(const wire::GetStatusReply& status) = 0;

  // Called a few times a second while the run lives, also when it is being stopped.
  virtual void StillHere() {}

  // Ends all. Returns what had to be said.
  virtual std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) = 0;
};

}  // namespace slackline::cli

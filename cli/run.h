// One run, from the first process to the report.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/run_processes.h"
#include "cli/signals.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

struct RunOptions {
  // As the user called this program; for the commands that are proposed at the end.
  std::string program = "slackline";
  std::string job_file;
  // In the place of the workers' program; empty: none.
  std::string script = {};
  bool quiet = false;
  // Asked a few times a second, with the signal that has come, if one has; what it says, if anything, is why the run
  // ends now, in good order. A signal that it makes nothing of is taken as ever.
  std::function<std::string(std::optional<int> signal)> leave = nullptr;
  // How long it may take where `leave` ends it, last checkpoint included; as the job says where there is none.
  std::optional<absl::Duration> leave_within = std::nullopt;
  // How it is gone on with, but for its folder: for messages.
  std::string resume = "slackline resume";
  // Who stops it, for messages.
  std::string command = "`slackline train`";
};

// Thread-safety: none.
// Ownership:     borrows all but the job while it lives.
class Run {
 public:
  // How long a scheduler that does not answer just now, or is being started again, may take to hear that the run stops.
  static constexpr absl::Duration kTellMax = absl::Seconds(60);

  Run(const RunOptions& options, job::Job job, const RunFolder& folder, SignalQueue& signals, RunProcesses& processes);

  // Starts the processes, shows the progress, ends all, and reports. Returns the exit code.
  int Execute();

  // Training has begun.
  bool begun() const { return begun_; }
  // It has ended because options.leave said so; the job was neither done nor failed before.
  bool left() const { return left_; }
  // A stop signal came while it ended.
  bool hurried() const { return hurried_; }

 private:
  void Announce();
  // Until the job has ended, something has broken, or somebody stops it.
  int Follow();
  absl::Duration silence_max() const;
  // Notes what happened to the processes. The first trouble stays: what follows is its consequence.
  void Watch();
  absl::StatusOr<wire::GetStatusReply> AskScheduler();
  // Somebody has removed the run folder, not just now, and not for a moment.
  bool FolderIsGone();
  // Makes it anew, for what can still be saved, and ends the run.
  int EndWithoutFolder();
  // Until the scheduler has seen to everybody's end; shows what it says meanwhile. `tell`: it again, where it has
  // forgotten.
  void AwaitEnd(absl::Duration most, const std::function<void()>& tell);
  // Says so where no last checkpoint could be made.
  void SayUnsaved();
  // Where the scheduler could not: how the run has ended, for who asks later.
  void RecordEnd(const std::string& state, const std::string& reason);
  // All that the job leaves behind is written, and its end is known: nobody needs to be waited for, but servers that
  // have snapshots to remove.
  int Finish();
  // `tell_max`: as TellToStop() has it.
  int Broken(const std::string& reason, absl::Duration tell_max = kTellMax);
  int Interrupted(const std::string& reason);
  int Leave(const std::string& reason);
  // How long a run that ends in good order may take for its last checkpoint.
  absl::Duration last_checkpoint_max() const;
  // A checkpoint, or waiting for room for it.
  absl::Duration checkpoint_max() const;
  void MakeCheckpoint();
  // 0: there is none.
  uint64_t NewestCheckpoint() const;
  void PointToCheckpoint();
  // Has the scheduler save the run and end it, then ends what is left.
  void StopInOrder(const std::string& reason, int impatient_at);
  // Until the scheduler has heard it, for at most `most` and at least once; false where it does not. One that has died
  // or hangs meanwhile is started again as the job allows, and told then.
  bool TellToStop(const std::string& reason, bool failed, absl::Duration most);
  // For a moment. A stop signal says that somebody is impatient.
  void WaitForSignal();
  void StopAll(const Crew::StopDeadlines& deadlines);
  void PointToLogs();

  const RunOptions& options_;
  const job::Job job_;
  const RunFolder& folder_;
  SignalQueue& signals_;
  RunProcesses& processes_;
  Output out_{STDOUT_FILENO};
  Progress progress_;
  std::string page_said_;
  bool begun_ = false;
  bool left_ = false;
  bool hurried_ = false;
  int signals_left_ = 1;  // until nobody is waited for
  wire::GetStatusReply status_;
  std::string trouble_;
  absl::Time trouble_since_;
  absl::Time trouble_deadline_ = absl::InfiniteFuture();
  bool trouble_maybe_done_ = true;  // all of it
  int gone_looks_ = 0;              // in a row in which the run folder was not there
};

}  // namespace slackline::cli

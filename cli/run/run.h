// Execution of one run, from the first process to the report.
#pragma once

#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/base/signals.h"
#include "cli/base/start_text.h"
#include "cli/run/progress.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_processes.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

struct RunOptions {
  // Command that starts such a run; for the commands that are proposed at the end.
  StartText start = {};
  bool quiet = false;
  // True if workers are scripts, which may have work of their own when the job is over.
  bool has_scripts = false;
  // Function that decides whether the run ends early. It is called a few times a second, with the signal that has come,
  // if any. It returns the reason for which the run ends now, in good order, or an empty string. A signal for which it
  // returns an empty string has its usual effect. May be empty.
  std::function<std::string(std::optional<int> signal)> leave = nullptr;
  // Time limit for ending the run when `leave` ends it, including the last checkpoint. Absent: as the job says.
  std::optional<absl::Duration> leave_within = std::nullopt;
  // Command that resumes the run, without the run folder; for messages.
  std::string resume = "slackline resume";
  // Settings that the run was resumed with. A run that could not begin has not kept them.
  std::vector<std::string> resume_settings = {};
  // Command that a signal stops; for messages.
  std::string command = "`slackline train`";
};

// Starts the processes of a run, follows it to its end, and reports the result.
//
// Thread-safety: none.
// Ownership:     borrows its arguments, except for the job, while it lives.
class Run {
 public:
  // Time within which a scheduler that does not answer just now, or is being restarted, must hear that the run stops.
  static constexpr absl::Duration kTellMax = absl::Seconds(60);

  Run(const RunOptions& options, job::Job job, const RunFolder& folder, SignalQueue& signals, RunProcesses& processes);

  // Starts the processes, shows the progress, ends all processes, and reports. Returns the exit code.
  int Execute();

  // True once training has begun.
  bool begun() const { return begun_; }
  // True if the run has ended because options.leave said so; the job was neither done nor failed before.
  bool left() const { return left_; }
  // True if a stop signal came while the run ended.
  bool hurried() const { return hurried_; }

 private:
  void Announce();
  // Follows the run until the job has ended, something has broken, or somebody stops it.
  int Follow();
  absl::Duration silence_max() const;
  // Records what happened to the processes. Only the first trouble is kept: later ones are its consequences.
  void Watch();
  absl::StatusOr<wire::GetStatusReply> AskScheduler();
  // Notes an answer of the scheduler.
  void Take(const wire::GetStatusReply& status);
  // True if somebody has removed the run folder. Several looks in a row must find it missing, so that a short absence
  // does not count.
  bool FolderIsGone();
  // Recreates the run folder for what can still be saved, and ends the run.
  int EndWithoutFolder();
  // Waits, for at most `most`, until the scheduler has ended the job for all members. Shows the scheduler's new events
  // meanwhile. `tell` repeats the order to stop, if a restarted scheduler does not know it.
  void AwaitEnd(absl::Duration most, const std::function<void()>& tell);
  // Reports if no last checkpoint could be made.
  void SayUnsaved();
  // Records how the run has ended, if the scheduler could not, so that later queries find it.
  void RecordEnd(const std::string& state, const std::string& reason);
  // Ends a run whose results are all written and whose end is known. Waits for nobody, except for servers that have
  // snapshots to remove.
  int Finish();
  // `tell_max` is `most` of TellToStop().
  int Broken(const std::string& reason, absl::Duration tell_max = kTellMax);
  int Interrupted(const std::string& reason);
  int Leave(const std::string& reason);
  // Time limit for the last checkpoint of a run that ends in good order.
  absl::Duration last_checkpoint_max() const;
  // Time limit for a checkpoint, or for room on the disk for it.
  absl::Duration checkpoint_max() const;
  void MakeCheckpoint();
  // Number of the newest checkpoint; 0 if there is none.
  uint64_t NewestCheckpoint() const;
  void PointToCheckpoint();
  // Returns what the scheduler should have written at the end and has not; empty if all is there.
  std::string MissingAtTheEnd() const;
  // Makes the scheduler save the run and end it, then ends the processes that are left.
  void StopInOrder(const std::string& reason, int impatient_at);
  // Repeats the order to stop until the scheduler has heard it: at least once, and for at most `most`. Returns false if
  // the scheduler does not hear it. A scheduler that dies or hangs meanwhile is restarted as the job allows, and told
  // then.
  bool TellToStop(const std::string& reason, bool failed, absl::Duration most);
  // Waits a moment for a signal. A stop signal means that the user wants no more waiting.
  void WaitForSignal();
  void StopAll(const Crew::StopDeadlines& deadlines);
  void PointToLogs();

  const RunOptions& options_;
  const job::Job job_;
  const RunFolder& folder_;
  SignalQueue& signals_;
  RunProcesses& processes_;
  Output out_{STDOUT_FILENO};
  ProgressDisplay progress_;
  std::string page_said_;
  bool begun_ = false;
  // Samples that were trained before this run, such as those of a checkpoint.
  std::optional<uint64_t> first_samples_;
  bool left_ = false;
  bool hurried_ = false;
  int signals_left_ = 1;  // stop signals until the run waits for nobody
  wire::GetStatusReply status_;
  std::string trouble_;
  absl::Time trouble_since_;
  absl::Time trouble_deadline_ = absl::InfiniteFuture();
  bool trouble_maybe_done_ = true;  // true while all trouble may just be the end of the job
  int gone_looks_ = 0;              // looks in a row that found no run folder
};

}  // namespace slackline::cli

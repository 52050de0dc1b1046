#include "cli/run/run.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/base/complain.h"
#include "cli/base/shell_word.h"
#include "cli/run/cluster.h"
#include "cli/run/report.h"
#include "cli/run/run_end.h"
#include "common/checkpoint/folder.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

// Between two questions to the scheduler; signals and deaths wake us at once.
constexpr absl::Duration kPollEvery = absl::Milliseconds(200);
constexpr absl::Duration kStatusTimeout = absl::Seconds(2);
// A scheduler that answers nothing for so long will not come back.
constexpr absl::Duration kSilenceMax = absl::Seconds(30);
// A server that leaves in good order has been told that the job is over; the news reaches us within this.
constexpr absl::Duration kEndGrace = absl::Seconds(5);
// For members to leave by themselves when the job was stopped.
constexpr absl::Duration kLeaveMax = absl::Seconds(10);
// The same where something is broken: the servers may still save what they have.
constexpr absl::Duration kBrokenLeaveMax = absl::Seconds(30);
// Time for scripts to end their own work when the job is done.
constexpr absl::Duration kScriptsMax = absl::Hours(1);
// For servers to hear that the job is done, and to remove their snapshots.
constexpr absl::Duration kTidyMax = absl::Seconds(10);
// Looks in a row that find no run folder.
constexpr int kGoneLooks = 5;

}  // namespace

Run::Run(const RunOptions& options, job::Job job, const RunFolder& folder, SignalQueue& signals,
         RunProcesses& processes)
    : options_(options),
      job_(std::move(job)),
      folder_(folder),
      signals_(signals),
      processes_(processes),
      progress_(out_,
                job_.output().log_format() == job::Output::JSON ? ProgressDisplay::Kind::kLog
                : ::isatty(STDOUT_FILENO) != 0                  ? ProgressDisplay::Kind::kLive
                                                                : ProgressDisplay::Kind::kLines,
                options.quiet) {
  // What is saved at the end must not depend on whether somebody still reads this: Ctrl-C ends `tee`, too.
  ::signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);
}

int Run::Execute() {
  if (!options_.quiet) Announce();
  const absl::Status started = processes_.Start();
  if (absl::IsCancelled(started)) return Interrupted(absl::StrCat("stopped by a signal to ", options_.command));
  if (!started.ok()) return Broken(std::string(started.message()));
  return Follow();
}

void Run::Announce() {
  const job::Cluster& cluster = job_.cluster();
  const auto plural = [](uint32_t count, const char* noun) {
    return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
  };
  progress_.Say(absl::StrCat("Training ", job_.name(), ": ", plural(cluster.servers(), "server"),
                             ServerProcesses(job_) > cluster.servers() ? " with backups, " : ", ",
                             plural(cluster.workers(), "worker"), ", run folder ", folder_.path().string()));
}

int Run::Follow() {
  absl::Time last_answer = SteadyTime().Now();
  while (true) {
    const std::optional<int> signal = signals_.Wait(kPollEvery);
    if (options_.leave) {
      if (const std::string reason = options_.leave(signal); !reason.empty()) return Leave(reason);
    }
    if (signal && IsStop(*signal)) return Interrupted(absl::StrCat("stopped by a signal to ", options_.command));
    if (signal && *signal == SIGUSR1) MakeCheckpoint();
    Watch();
    if (FolderIsGone()) return EndWithoutFolder();
    const absl::StatusOr<wire::GetStatusReply> status = AskScheduler();
    const absl::Time now = SteadyTime().Now();
    if (status.ok()) {
      last_answer = now;
      Take(*status);
      // Again where a scheduler that was started again has another one.
      if (!options_.quiet && status_.page() != page_said_) progress_.Say(absl::StrCat("Status page: ", status_.page()));
      page_said_ = status_.page();
      progress_.Show(status_, now);
      if (HasEnded(status_)) return Finish();
    } else if (now - last_answer > silence_max()) {
      return Broken(absl::StrCat("the scheduler has not answered for ", absl::FormatDuration(silence_max()), ": ",
                                 std::string(status.status().message())),
                    /*tell_max=*/absl::ZeroDuration());
    }
    // What may be the end of the job is none before the scheduler has said so since.
    const bool heard = !trouble_maybe_done_ || last_answer > trouble_since_ || !processes_.scheduler_runs();
    if (!trouble_.empty() && now >= trouble_deadline_ && heard) return Broken(trouble_);
  }
}

void Run::Take(const wire::GetStatusReply& status) {
  status_ = status;
  if (!first_samples_) first_samples_ = status.samples_done();
  // A job that was stopped soon after its beginning may not have been seen in training.
  begun_ = begun_ || status.state() == wire::JOB_TRAINING || status.state() == wire::JOB_DONE ||
           status.samples_done() > *first_samples_;
}

absl::StatusOr<wire::GetStatusReply> Run::AskScheduler() {
  absl::StatusOr<wire::GetStatusReply> status = processes_.scheduler().GetStatus(kStatusTimeout);
  processes_.Heard(!absl::IsUnavailable(status.status()) && !absl::IsDeadlineExceeded(status.status()));
  return status;
}

bool Run::FolderIsGone() {
  // A file system that does not answer, or refuses, is something else.
  const bool gone = ::access(folder_.job_file().c_str(), F_OK) != 0 && errno == ENOENT;
  gone_looks_ = gone ? gone_looks_ + 1 : 0;
  return gone_looks_ >= kGoneLooks;
}

int Run::EndWithoutFolder() {
  const absl::Status made = folder_.MakeAgain(ToYaml(job_));
  return Broken(absl::StrCat("another program removed the run folder ", folder_.path().string(), " during the run; ",
                             made.ok() ? "Slackline makes the folder again, and saves what it still can"
                                       : absl::StrCat("Slackline cannot make the folder again: ", made.message())));
}

absl::Duration Run::silence_max() const {
  if (job_.durability().mode() == job::Durability::NONE) return kSilenceMax;
  return std::max(kSilenceMax, absl::Seconds(job_.durability().scheduler_return_s()));
}

void Run::Watch() {
  const RunProcesses::News news = processes_.Watch(status_);
  for (const std::string& line : news.lines) progress_.Say(line);
  if (news.trouble.empty() || HasEnded(status_)) return;
  const absl::Time deadline = SteadyTime().Now() + (news.maybe_done ? kEndGrace : absl::ZeroDuration());
  if (trouble_.empty()) {
    trouble_ = news.trouble;
    trouble_since_ = SteadyTime().Now();
  }
  trouble_maybe_done_ = trouble_maybe_done_ && news.maybe_done;
  trouble_deadline_ = std::min(trouble_deadline_, deadline);
}

int Run::Finish() {
  progress_.Clear();
  const bool tidies = status_.state() == wire::JOB_DONE && job_.durability().mode() != job::Durability::NONE;
  const bool failed = status_.state() == wire::JOB_FAILED;
  signals_left_ = 2;
  const absl::Duration leave = failed ? kBrokenLeaveMax : tidies ? kTidyMax : absl::ZeroDuration();
  AwaitEnd(leave + checkpoint_max(), [] {});
  const bool awaits_scripts = options_.has_scripts && status_.state() == wire::JOB_DONE;
  StopAll({.leave = leave,
           .scripts = awaits_scripts ? kScriptsMax : absl::ZeroDuration(),
           .on_scripts =
               [this](const std::string& names) {
                 progress_.Say(absl::StrCat("The job is done. Waiting for scripts that still run: ", names,
                                            " (Ctrl-C ends them)"));
               },
           .impatient_at = signals_left_});
  const std::string crash = processes_.SchedulerCrash();
  const std::string missing = crash.empty() ? "" : MissingAtTheEnd();
  if (status_.state() == wire::JOB_DONE && !missing.empty()) {
    const std::string why = signals_left_ > 0 ? absl::StrCat("ended too early (", crash, ")") : "was killed at once";
    const std::string reason = absl::StrCat("all is trained, but the scheduler ", why, ", without ", missing);
    log::Error("failed: ", reason);
    RecordEnd("failed", reason);
    PointToCheckpoint();
    PointToLogs();
    return kExitFailed;
  }
  const bool stopped = status_.state() == wire::JOB_STOPPED;
  RecordEnd(status_.state() == wire::JOB_DONE ? "done" : stopped ? "stopped" : "failed", status_.reason());
  SayUnsaved();
  if (status_.state() == wire::JOB_DONE) {
    out_.Write(absl::StrCat("\n", RenderEvaluation(job_, status_.evaluation()), "\n", RenderResults(folder_.path()),
                            "\n", RenderNext(job_, options_.start, folder_.path())));
    return kExitDone;
  }
  const std::string& reason = trouble_.empty() ? status_.reason() : trouble_;
  log::Error(stopped ? "stopped" : "failed", ": ", reason);
  PointToCheckpoint();
  PointToLogs();
  return kExitFailed;
}

int Run::Broken(const std::string& reason, absl::Duration tell_max) {
  progress_.Clear();
  log::Error("failed: ", reason);
  signals_left_ = 2;
  // An event is one line; a reason that quotes a process has several.
  const std::string line = absl::StrReplaceAll(reason, {{"\n    ", " "}, {"\n", " "}});
  if (TellToStop(line, /*failed=*/true, tell_max)) {
    AwaitEnd(kBrokenLeaveMax + checkpoint_max(),
             [&] { processes_.scheduler().StopJob(line, /*failed=*/true).IgnoreError(); });
  }
  StopAll({.leave = kBrokenLeaveMax, .impatient_at = signals_left_});
  RecordEnd("failed", line);
  SayUnsaved();
  PointToCheckpoint();
  PointToLogs();
  return kExitFailed;
}

int Run::Interrupted(const std::string& reason) {
  progress_.Say("Stopping; once more to kill at once.");
  StopInOrder(reason, /*impatient_at=*/1);
  RecordEnd("stopped", reason);
  log::Error(absl::string_view("stopped"));
  PointToCheckpoint();
  PointToLogs();
  return kExitFailed;
}

int Run::Leave(const std::string& reason) {
  left_ = true;
  progress_.Clear();
  progress_.Say(absl::StrCat("Saving the run, and stopping: ", reason));
  // Signals that say the same again do not hurry the last checkpoint.
  StopInOrder(reason, /*impatient_at=*/3);
  RecordEnd("stopped", reason);
  PointToCheckpoint();
  return kExitFailed;
}

std::string Run::MissingAtTheEnd() const {
  std::vector<std::string> missing;
  std::error_code error;
  if (!std::filesystem::exists(folder_.path() / "summary.json", error)) missing.push_back("summary.json");
  if (job_.checkpoint().at_end()) {
    const auto list = checkpoint::List(checkpoint::FolderOfRun(job_.checkpoint().folder(), folder_.path()));
    const absl::StatusOr<checkpoint::Manifest> newest =
        list.empty() ? absl::NotFoundError("no checkpoint") : checkpoint::ReadManifest(list.front().path);
    const bool whole = newest.ok() && newest->scheduler().progress().totals().steps() >= status_.step();
    if (!whole) missing.push_back("a checkpoint of all that was trained");
  }
  return absl::StrJoin(missing, " and ");
}

void Run::StopInOrder(const std::string& reason, int impatient_at) {
  signals_left_ = impatient_at;
  const uint64_t newest = NewestCheckpoint();
  bool broke_off = false;
  if (TellToStop(reason, /*failed=*/false, kTellMax)) {
    AwaitEnd(kLeaveMax + last_checkpoint_max(),
             [&] { processes_.scheduler().StopJob(reason, /*failed=*/false).IgnoreError(); });
    const bool hangs = processes_.scheduler_runs() && !AskScheduler().ok();
    StopAll({.leave = signals_left_ > 0 ? kLeaveMax : absl::ZeroDuration(), .impatient_at = signals_left_});
    SayUnsaved();
    broke_off = hangs || !trouble_.empty() || !processes_.SchedulerCrash().empty();
  } else {
    StopAll({.leave = absl::ZeroDuration(), .impatient_at = signals_left_});
  }
  // The scheduler was told, or nobody had the time to tell it: only the folder knows whether it made a checkpoint.
  if (!begun_ || last_checkpoint_max() == absl::ZeroDuration() || NewestCheckpoint() != newest) return;
  if (signals_left_ <= 0) {
    progress_.Say("Killed before a checkpoint was made at the end: nothing was saved there.");
  } else if (broke_off) {
    progress_.Say("The scheduler did not live to make a checkpoint at the end: nothing was saved there.");
  }
}

void Run::AwaitEnd(absl::Duration most, const std::function<void()>& tell) {
  const absl::Time deadline = SteadyTime().Now() + most;
  absl::Time last_answer = SteadyTime().Now();
  // A scheduler that crashes or hangs meanwhile is restarted, and may have forgotten that the job is over.
  while (signals_left_ > 0 && SteadyTime().Now() < deadline) {
    if (!processes_.scheduler_runs()) Watch();
    if (!processes_.scheduler_runs()) break;
    const absl::StatusOr<wire::GetStatusReply> status = AskScheduler();
    const absl::Time now = SteadyTime().Now();
    if (status.ok()) {
      last_answer = now;
      Take(*status);
      progress_.ShowEvents(status_);
      if (!HasEnded(status_)) tell();
    } else {
      Watch();
      if (HasEnded(status_) && now - last_answer > silence_max()) break;
    }
    WaitForSignal();
  }
}

void Run::SayUnsaved() {
  const bool unsaved = status_.checkpoint_failed() > status_.checkpoint();
  if (unsaved) {
    progress_.Say(absl::StrCat("The scheduler could not make a last checkpoint: ", status_.checkpoint_error()));
  }
}

void Run::RecordEnd(const std::string& state, const std::string& reason) {
  const absl::Status recorded = cli::RecordEnd(folder_.path(), state, reason);
  if (!recorded.ok()) log::Warning("cannot write the end of the run to events.log: ", std::string(recorded.message()));
}

bool Run::TellToStop(const std::string& reason, bool failed, absl::Duration most) {
  if (!processes_.has_scheduler()) return false;
  const absl::Time deadline = SteadyTime().Now() + most;
  bool may_answer = true;
  while (may_answer && signals_left_ > 0) {
    const absl::Status told = processes_.scheduler().StopJob(reason, failed);
    if (told.ok()) return true;
    processes_.Heard(!absl::IsUnavailable(told) && !absl::IsDeadlineExceeded(told));
    WaitForSignal();
    // A scheduler that has died is started again here, if the job allows it.
    Watch();
    // Watch() may have killed the scheduler without seeing it dead; only the next look makes its restart due.
    if (!processes_.scheduler_runs()) Watch();
    may_answer = SteadyTime().Now() < deadline && processes_.scheduler_runs();
  }
  if (signals_left_ > 0) progress_.Say("The scheduler did not answer: nothing was saved at the end.");
  return false;
}

void Run::WaitForSignal() {
  const std::optional<int> signal = signals_.Wait(kPollEvery);
  if (signal && IsStop(*signal)) {
    --signals_left_;
    hurried_ = true;
  }
  processes_.StillHere();
}

absl::Duration Run::last_checkpoint_max() const {
  if (left_ && options_.leave_within) return std::max(absl::ZeroDuration(), *options_.leave_within - kLeaveMax);
  return job_.checkpoint().at_end() ? checkpoint_max() : absl::ZeroDuration();
}

absl::Duration Run::checkpoint_max() const { return absl::Seconds(job_.checkpoint().timeout_s()); }

void Run::MakeCheckpoint() {
  const absl::StatusOr<uint64_t> number =
      processes_.scheduler().Checkpoint(absl::StrCat("SIGUSR1 to ", options_.command));
  progress_.Say(number.ok() ? absl::StrCat("SIGUSR1: checkpoint ", *number, " is being made")
                            : absl::StrCat("SIGUSR1: cannot make a checkpoint: ", number.status().message()));
}

uint64_t Run::NewestCheckpoint() const {
  const auto list = checkpoint::List(checkpoint::FolderOfRun(job_.checkpoint().folder(), folder_.path()));
  return list.empty() ? 0 : list.front().number;
}

void Run::PointToCheckpoint() {
  const auto list = checkpoint::List(checkpoint::FolderOfRun(job_.checkpoint().folder(), folder_.path()));
  if (list.empty()) {
    std::error_code error;
    if (status_.state() == wire::JOB_STOPPED && std::filesystem::is_directory(folder_.path() / "scheduler", error)) {
      log::Info("there is no checkpoint, but the scheduler and the servers have saved the run; ",
                (folder_.path() / "logs" / "scheduler.log").string(), " says how to continue");
    } else if (begun_) {
      log::Info("there is no checkpoint; to start again: ", options_.start.Whole());
    }
    return;
  }
  std::string settings;
  if (!begun_) {
    for (const std::string& setting : options_.resume_settings) {
      absl::StrAppend(&settings, " --set ", ShellWord(setting));
    }
  }
  log::Info("the last checkpoint is ", list.front().path.filename().string(), "; to continue: ", options_.resume, " ",
            ShellWord(folder_.path().string()), settings);
}

void Run::StopAll(const Crew::StopDeadlines& deadlines) {
  for (const std::string& line : processes_.Stop(deadlines)) progress_.Say(line);
}

void Run::PointToLogs() { log::Info("the logs are in ", (folder_.path() / "logs").string()); }

}  // namespace slackline::cli

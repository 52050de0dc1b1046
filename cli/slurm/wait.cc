#include "cli/slurm/wait.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/base/replace_file.h"
#include "cli/commands/status.h"
#include "cli/run/run_end.h"
#include "cli/run/scheduler_client.h"
#include "cli/run/slurm_queue.h"
#include "cli/slurm/slurm_programs.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/time/clock.h"

namespace slackline::cli::slurm {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kShowEvery = absl::Milliseconds(300);
// Between two questions to SLURM: the second one when the job is to end, or may have ended.
constexpr absl::Duration kSqueueEvery = absl::Seconds(5), kSqueueSoon = absl::Seconds(1);
// SLURM may put a job whose node has failed back into the queue a moment later.
constexpr int kLooksForEnd = 3;
constexpr absl::Duration kOrderAgain = absl::Seconds(2);
// Time for the scheduler of the run to take the order to end.
constexpr absl::Duration kSchedulerMax = absl::Seconds(20);
// Time for the run to end once it has been told, besides that for its last checkpoint.
constexpr absl::Duration kEndedMax = absl::Minutes(2);
constexpr absl::Duration kScancelMax = absl::Seconds(30);
// Time for SLURM to end a job that was cancelled.
constexpr absl::Duration kGoneMax = absl::Minutes(5);
constexpr char kReason[] = "stopped by a signal to the process that follows the job";

// Ends this process by a signal that it had blocked.
int EndBy(int signal) {
  log::Flush();
  ::signal(signal, SIG_DFL);
  ::sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::raise(signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return kExitFailed;
}

// Follows one job of SLURM.
//
// Thread-safety: none.
class JobFollower {
 public:
  JobFollower(fs::path run, std::string number, bool from_start, SignalQueue& signals)
      : run_(std::move(run)),
        number_(std::move(number)),
        output_(run_ / "submit" / absl::StrCat("slurm-", number_, ".out")),
        signals_(signals) {
    std::error_code error;
    const uintmax_t size = from_start ? 0 : fs::file_size(output_, error);
    if (!error) shown_ = static_cast<std::streamoff>(size);
    events_ = EventBytes();
    events_before_ = from_start ? events_ : 0;
  }

  int Execute() {
    while (true) {
      const std::optional<int> signal = signals_.Wait(kShowEvery);
      if (signal && IsStop(*signal) && *signal != SIGINT) {
        std::printf("SLURM job %s goes on; to follow it: slackline slurm wait %s\n", number_.c_str(), run_.c_str());
        std::fflush(stdout);
        return EndBy(*signal);
      }
      const absl::Time now = SteadyTime().Now();
      if (signal && *signal == SIGINT) TakeOrder(now);
      ShowOutput();
      if (const uintmax_t bytes = EventBytes(); bytes != std::exchange(events_, bytes)) {
        look_at_ = std::min(look_at_, now + kSqueueSoon);
      }
      if (now >= look_at_) Look(now);
      if (over_) return Report();
      if (wanted_ != Wanted::kNothing && now >= order_at_) GiveOrder(now);
      if (now > give_up_) {
        return Fail(absl::DeadlineExceededError(absl::StrCat("SLURM has not ended job ", number_, " within ",
                                                             absl::FormatDuration(kGoneMax),
                                                             " of scancel, and may still have it; it ", SlurmSays())));
      }
    }
  }

 private:
  enum class Wanted { kNothing, kSaved, kGone };

  uintmax_t EventBytes() const {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(run_ / "events.log", error);
    return error ? 0 : bytes;
  }

  void ShowOutput() {
    std::ifstream in(output_, std::ios::binary);
    if (!in.seekg(shown_)) return;
    const std::string text(std::istreambuf_iterator<char>(in), {});
    shown_ += static_cast<std::streamoff>(text.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  // Returns the last answer of SLURM, for messages: "says: ...".
  std::string SlurmSays() const { return absl::StrCat("says: ", said_.empty() ? "nothing" : said_); }

  void Look(absl::Time now) {
    const absl::StatusOr<QueuedJob> job = AskSlurm(number_);
    look_at_ = now + (wanted_ == Wanted::kNothing ? kSqueueEvery : kSqueueSoon);
    if (absl::IsNotFound(job.status())) {
      over_ = true;
      return;
    }
    const std::string text = job.ok() ? job->Describe() : std::string(job.status().message());
    if (text != said_) {
      said_ = text;
      // A status that cannot be written is only missing in lists of jobs.
      ReplaceFile(run_ / "submit" / "queue", text + "\n").IgnoreError();
      if (!job.ok()) log::Warning(text);
      if (job.ok() && !job->over()) std::printf("%s\n", text.c_str());
      std::fflush(stdout);
    }
    if (!job.ok()) return;
    pending_ = job->pending();
    looks_over_ = job->over() ? looks_over_ + 1 : 0;
    if (looks_over_ > 0) look_at_ = now + kSqueueSoon;
    over_ = looks_over_ >= (job->state == "NODE_FAIL" || job->state == "PREEMPTED" ? kLooksForEnd : 1);
  }

  void TakeOrder(absl::Time now) {
    const bool first = wanted_ == Wanted::kNothing;
    wanted_ = first ? Wanted::kSaved : Wanted::kGone;
    if (first) ordered_ = now;
    std::printf("%s\n", first ? "Stopping; once more to end it at once." : "Ending the job at once.");
    std::fflush(stdout);
    look_at_ = order_at_ = now;
  }

  void GiveOrder(absl::Time now) {
    order_at_ = now + kOrderAgain;
    if (wanted_ == Wanted::kGone) return Cancel(/*at_once=*/true);
    if (pending_) return Cancel(/*at_once=*/false);
    if (!told_) told_ = TellScheduler();
    const absl::Duration patience = told_ ? kEndedMax + checkpoint_max_ : kSchedulerMax;
    if (now > ordered_ + patience) Cancel(/*at_once=*/false);
  }

  bool TellScheduler() {
    if (const absl::StatusOr<job::Job> job = ReadJobFile(run_ / "job.yaml"); job.ok()) {
      checkpoint_max_ = absl::Seconds(job->checkpoint().timeout_s());
    }
    const absl::StatusOr<std::string> address = FindAddress(run_);
    if (!address.ok()) return false;
    const auto protection = FindProtection({.target = run_, .job_file = ""});
    if (!protection.ok()) return false;
    return SchedulerClient(*address, *protection).StopJob(kReason, /*failed=*/false).ok();
  }

  // SLURM gives a job that was cancelled KillWait seconds to save itself, unless it is to end at once.
  void Cancel(bool at_once) {
    std::vector<std::string> command = {"scancel"};
    if (at_once && !killed_) command.insert(command.end(), {"--full", "--signal=KILL"});
    command.push_back(number_);
    const absl::StatusOr<std::string> answer = Ask(command, run_ / "submit" / "scancel.log", kScancelMax);
    if (!answer.ok()) log::Warning(std::string(answer.status().message()));
    killed_ = at_once;
    if (give_up_ == absl::InfiniteFuture()) give_up_ = SteadyTime().Now() + kGoneMax;
  }

  int Report() {
    ShowOutput();
    const std::string slurm = said_.empty() ? absl::StrCat("SLURM job ", number_, " has ended") : said_;
    const bool recorded = EventBytes() > events_before_;
    if (!recorded && wanted_ == Wanted::kSaved) {
      const absl::Status noted = RecordEnd(run_, "stopped", "stopped before SLURM started it");
      if (!noted.ok()) log::Warning(std::string(noted.message()));
      return Complain(absl::CancelledError(absl::StrCat(slurm, "; it was stopped before it began")));
    }
    const absl::StatusOr<wire::JobStatus> end =
        recorded ? ReadEnd(run_, /*ask_slurm=*/false) : absl::NotFoundError("no end");
    const std::string state = end.ok() ? end->state() : "";
    if (state == "done") return kExitDone;
    const std::string how = state == "failed" || state == "stopped"
                                ? absl::StrCat("the run has ", state, ": ", end->reason())
                                : "its run has recorded no end";
    const std::string go_on = end.ok() && !end->go_on().empty() ? absl::StrCat("; to continue: ", end->go_on()) : "";
    return Fail(absl::AbortedError(absl::StrCat(slurm, "; ", how, go_on)));
  }

  const fs::path run_;
  const std::string number_;
  const fs::path output_;
  SignalQueue& signals_;
  std::streamoff shown_ = 0;
  uintmax_t events_before_ = 0;  // bytes of events.log before the job
  uintmax_t events_ = 0;         // bytes of events.log at the last look; more may be the end of the run
  std::string said_;             // last answer of SLURM, or why there was none
  bool pending_ = false;
  int looks_over_ = 0;  // answers in a row that say that the job has ended
  bool over_ = false;
  absl::Time look_at_ = absl::InfinitePast();
  Wanted wanted_ = Wanted::kNothing;
  bool told_ = false;    // the run's scheduler has the order
  bool killed_ = false;  // scancel has killed the job's processes
  absl::Duration checkpoint_max_ = absl::ZeroDuration();
  absl::Time ordered_ = absl::InfiniteFuture();
  absl::Time order_at_ = absl::InfinitePast();
  absl::Time give_up_ = absl::InfiniteFuture();
};

}  // namespace

int FollowJob(const fs::path& run, bool from_start, SignalQueue& signals) {
  const std::optional<std::string> number = SlurmJobOf(run);
  if (!number) {
    return Complain(absl::NotFoundError(absl::StrCat("found no SLURM job of the run in ", run.string(),
                                                     " (submit/job-id); allowed is the folder of a run that was "
                                                     "submitted")));
  }
  return JobFollower(run, *number, from_start, signals).Execute();
}

int Wait(const std::string& run_folder) {
  SignalQueue signals;
  return FollowJob(fs::absolute(run_folder).lexically_normal(), /*from_start=*/false, signals);
}

}  // namespace slackline::cli::slurm

#include "cli/train.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/cluster.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/signals.h"
#include "common/job_file.h"
#include "common/security/check_credentials.h"
#include "common/security/security.h"

namespace slackline::cli {
namespace {

// Between two questions to the scheduler; signals and deaths wake us at once.
constexpr absl::Duration kPollEvery = absl::Milliseconds(200);
constexpr absl::Duration kStatusTimeout = absl::Seconds(2);
// A scheduler that answers nothing for so long will not come back.
constexpr absl::Duration kSilenceMax = absl::Seconds(30);
// A server that leaves in good order has been told that the job is over; the news reaches us within this.
constexpr absl::Duration kEndGrace = absl::Seconds(5);
// For servers to hear that the job is done, and to remove their snapshots.
constexpr absl::Duration kTidyMax = absl::Seconds(10);

bool Ended(const wire::GetStatusReply& status) {
  return status.state() == wire::JOB_DONE || status.state() == wire::JOB_FAILED || status.state() == wire::JOB_STOPPED;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "slackline: %s\n", std::string(status.message()).c_str());
  return code;
}

// One run, from the first process to the report.
//
// Thread-safety: none.
class Run {
 public:
  Run(const TrainOptions& options, job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection,
      RunFolder folder, SignalQueue& signals)
      : options_(options),
        job_(std::move(job)),
        folder_(std::move(folder)),
        signals_(signals),
        cluster_(job_, std::move(programs), std::move(protection), folder_, signals),
        progress_(stdout, ::isatty(STDOUT_FILENO) != 0, options.quiet) {}

  int Execute() {
    if (!options_.quiet) Announce();
    const absl::Status started = cluster_.Start();
    if (absl::IsCancelled(started)) return Interrupted();
    if (!started.ok()) return Broken(std::string(started.message()));
    return Follow();
  }

 private:
  void Announce() {
    const job::Cluster& cluster = job_.cluster();
    const auto plural = [](uint32_t count, const char* noun) {
      return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
    };
    progress_.Say(absl::StrCat("Training ", job_.name(), ": ", plural(cluster.servers(), "server"), ", ",
                               plural(cluster.workers(), "worker"), ", run folder ", folder_.path().string()));
  }

  // Until the job has ended, something has broken, or somebody stops it.
  int Follow() {
    absl::Time last_answer = absl::Now();
    while (true) {
      const std::optional<int> signal = signals_.Wait(kPollEvery);
      if (signal && IsStop(*signal)) return Interrupted();
      Watch();
      const absl::StatusOr<wire::GetStatusReply> status = cluster_.scheduler().GetStatus(kStatusTimeout);
      const absl::Time now = absl::Now();
      if (status.ok()) {
        last_answer = now;
        status_ = *status;
        progress_.Show(status_, now);
        if (Ended(status_)) return Finish();
      } else if (now - last_answer > silence_max()) {
        return Broken(absl::StrCat("the scheduler has not answered for ", absl::FormatDuration(silence_max()), ": ",
                                   std::string(status.status().message())));
      }
      if (!trouble_.empty() && now >= trouble_deadline_) return Broken(trouble_);
    }
  }

  absl::Duration silence_max() const {
    if (job_.durability().mode() == job::Durability::NONE) return kSilenceMax;
    return std::max(kSilenceMax, absl::Seconds(job_.durability().scheduler_return_s()));
  }

  // Notes what happened to the processes. The first trouble stays: what follows is its consequence.
  void Watch() {
    const Cluster::News news = cluster_.Watch(status_);
    for (const std::string& line : news.lines) progress_.Say(line);
    if (news.trouble.empty()) return;
    const absl::Time deadline = absl::Now() + (news.maybe_done ? kEndGrace : absl::ZeroDuration());
    if (trouble_.empty()) trouble_ = news.trouble;
    trouble_deadline_ = std::min(trouble_deadline_, deadline);
  }

  // All that the job leaves behind is written, and its end is known: nobody needs to be waited for, but servers that
  // have snapshots to remove.
  int Finish() {
    progress_.Clear();
    const bool tidies = status_.state() == wire::JOB_DONE && job_.durability().mode() != job::Durability::NONE;
    StopAll({.leave = tidies ? kTidyMax : absl::ZeroDuration()});
    if (status_.state() == wire::JOB_DONE) {
      std::printf(
          "\n%s\n%s\n%s", RenderEvaluation(status_.evaluation()).c_str(), RenderResults(folder_.path()).c_str(),
          RenderNext(job_, absl::StrCat(options_.program, " train ", options_.job_file), folder_.path()).c_str());
      return kExitDone;
    }
    const bool stopped = status_.state() == wire::JOB_STOPPED;
    const std::string& reason = trouble_.empty() ? status_.reason() : trouble_;
    std::fprintf(stderr, "slackline: %s: %s\n", stopped ? "stopped" : "failed", reason.c_str());
    PointToLogs();
    return kExitFailed;
  }

  int Broken(const std::string& reason) {
    progress_.Clear();
    std::fprintf(stderr, "slackline: failed: %s\n", reason.c_str());
    std::fflush(stderr);
    TellScheduler(reason.substr(0, reason.find('\n')), /*failed=*/true);
    StopAll({.leave = absl::Seconds(3)});
    PointToLogs();
    return kExitFailed;
  }

  int Interrupted() {
    progress_.Say("Stopping; once more to kill at once.");
    TellScheduler("stopped by a signal to `slackline train`", /*failed=*/false);
    StopAll({});
    std::fprintf(stderr, "slackline: stopped\n");
    PointToLogs();
    return kExitFailed;
  }

  void TellScheduler(const std::string& reason, bool failed) {
    if (cluster_.has_scheduler()) cluster_.scheduler().StopJob(reason, failed).IgnoreError();
  }

  void StopAll(const Crew::StopDeadlines& deadlines) {
    for (const std::string& line : cluster_.Stop(deadlines)) progress_.Say(line);
  }

  void PointToLogs() { std::fprintf(stderr, "slackline: the logs are in %s\n", (folder_.path() / "logs").c_str()); }

  const TrainOptions& options_;
  const job::Job job_;
  const RunFolder folder_;
  SignalQueue& signals_;
  Cluster cluster_;
  Progress progress_;
  wire::GetStatusReply status_;
  std::string trouble_;
  absl::Time trouble_deadline_ = absl::InfiniteFuture();
};

absl::StatusOr<RunFolder> MakeRunFolder(const TrainOptions& options, const job::Job& job) {
  if (!options.run_folder.empty()) return RunFolder::Create(options.run_folder);
  if (!job.output().folder().empty()) return RunFolder::Create(job.output().folder());
  return RunFolder::CreateUnused(DefaultRunFolder(job.name(), absl::Now()));
}

// What a worker would find out only after everything has started.
absl::Status CheckData(const job::Job& job) {
  std::error_code error;
  if (std::filesystem::is_directory(job.data().path(), error)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("data.path: found no folder ", job.data().path(),
                                          "; allowed is the folder of the images (Debian's dataset-fashion-mnist "
                                          "is the default's)"));
}

// All roles are on this machine; the command itself is an operator.
absl::StatusOr<security::Security> OpenSecurity(const job::Job& job) {
  if (job.security().mode() == job::Security::TLS) {
    for (const security::Role role : security::kRoles) {
      const absl::Status status = security::CheckPair(job.security().folder(), {job.name(), role}, absl::Now());
      if (!status.ok()) return status;
    }
  }
  return security::Security::Open(job, security::Role::kOperator);
}

}  // namespace

int Train(const TrainOptions& options) {
  // First of all: threads that start later must not take our signals.
  SignalQueue signals;
  absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return Fail(read.status(), kExitWrongUse);
  const job::Job job = Resolve(*read);
  if (absl::Status status = CheckData(job); !status.ok()) return Fail(status, kExitFailed);
  const absl::StatusOr<security::Security> security = OpenSecurity(job);
  if (!security.ok()) return Fail(security.status(), kExitFailed);
  absl::StatusOr<Programs> programs = Programs::BesideThisProgram();
  if (!programs.ok()) return Fail(programs.status(), kExitFailed);
  absl::StatusOr<RunFolder> folder = MakeRunFolder(options, job);
  if (!folder.ok()) return Fail(folder.status(), absl::IsAlreadyExists(folder.status()) ? kExitWrongUse : kExitFailed);
  // The processes read this copy: what happens to the original during the run does not reach a restarted worker.
  if (absl::Status status = folder->WriteJob(ToYaml(job)); !status.ok()) return Fail(status, kExitFailed);
  return Run(options, job, *std::move(programs), security->To(security::Role::kScheduler), *std::move(folder), signals)
      .Execute();
}

}  // namespace slackline::cli

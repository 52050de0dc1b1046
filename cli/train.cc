#include "cli/train.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/checkpoints.h"
#include "cli/cluster.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/signals.h"
#include "common/checkpoint/folder.h"
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
// For members to leave by themselves when the job was stopped.
constexpr absl::Duration kLeaveMax = absl::Seconds(10);
// The same where something is broken: the servers may still save what they have.
constexpr absl::Duration kBrokenLeaveMax = absl::Seconds(30);
// For servers to hear that the job is done, and to remove their snapshots.
constexpr absl::Duration kTidyMax = absl::Seconds(10);

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "slackline: %s\n", std::string(status.message()).c_str());
  return code;
}

// One run, from the first process to the report.
//
// Thread-safety: none.
class Run {
 public:
  // `protection` and `checkpoint`: as Cluster has them.
  Run(const TrainOptions& options, job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection,
      RunFolder folder, const std::string& checkpoint, SignalQueue& signals)
      : options_(options),
        job_(std::move(job)),
        folder_(std::move(folder)),
        signals_(signals),
        cluster_(job_, std::move(programs), std::move(protection), folder_, checkpoint, signals),
        progress_(stdout, ::isatty(STDOUT_FILENO) != 0, options.quiet) {}

  int Execute() {
    if (!options_.quiet) Announce();
    const absl::Status started = cluster_.Start();
    if (absl::IsCancelled(started)) return Interrupted();
    if (!started.ok()) return Broken(std::string(started.message()));
    return Follow();
  }

  // Training has begun.
  bool begun() const { return begun_; }

 private:
  void Announce() {
    const job::Cluster& cluster = job_.cluster();
    const auto plural = [](uint32_t count, const char* noun) {
      return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
    };
    progress_.Say(absl::StrCat("Training ", job_.name(), ": ", plural(cluster.servers(), "server"),
                               ServerProcesses(job_) > cluster.servers() ? " with backups, " : ", ",
                               plural(cluster.workers(), "worker"), ", run folder ", folder_.path().string()));
  }

  // Until the job has ended, something has broken, or somebody stops it.
  int Follow() {
    absl::Time last_answer = absl::Now();
    while (true) {
      const std::optional<int> signal = signals_.Wait(kPollEvery);
      if (signal && IsStop(*signal)) return Interrupted();
      if (signal && *signal == SIGUSR1) MakeCheckpoint();
      Watch();
      const absl::StatusOr<wire::GetStatusReply> status = cluster_.scheduler().GetStatus(kStatusTimeout);
      const absl::Time now = absl::Now();
      if (status.ok()) {
        last_answer = now;
        status_ = *status;
        begun_ = begun_ || status_.state() == wire::JOB_TRAINING || status_.state() == wire::JOB_DONE;
        progress_.Show(status_, now);
        if (HasEnded(status_)) return Finish();
      } else if (now - last_answer > silence_max()) {
        return Broken(absl::StrCat("the scheduler has not answered for ", absl::FormatDuration(silence_max()), ": ",
                                   std::string(status.status().message())));
      }
      // What may be the end of the job is none before the scheduler has said so since.
      const bool heard = !trouble_maybe_done_ || last_answer > trouble_since_ || !cluster_.scheduler_runs();
      if (!trouble_.empty() && now >= trouble_deadline_ && heard) return Broken(trouble_);
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
    if (trouble_.empty()) {
      trouble_ = news.trouble;
      trouble_since_ = absl::Now();
    }
    trouble_maybe_done_ = trouble_maybe_done_ && news.maybe_done;
    trouble_deadline_ = std::min(trouble_deadline_, deadline);
  }

  // All that the job leaves behind is written, and its end is known: nobody needs to be waited for, but servers that
  // have snapshots to remove.
  int Finish() {
    progress_.Clear();
    const bool tidies = status_.state() == wire::JOB_DONE && job_.durability().mode() != job::Durability::NONE;
    const bool failed = status_.state() == wire::JOB_FAILED;
    StopAll({.leave = failed ? kBrokenLeaveMax : (tidies ? kTidyMax : absl::ZeroDuration()) + last_checkpoint_max(),
             .impatient_at = 2});
    if (status_.state() == wire::JOB_DONE) {
      std::printf(
          "\n%s\n%s\n%s", RenderEvaluation(status_.evaluation()).c_str(), RenderResults(folder_.path()).c_str(),
          RenderNext(job_, absl::StrCat(options_.program, " train ", options_.job_file), folder_.path()).c_str());
      return kExitDone;
    }
    const bool stopped = status_.state() == wire::JOB_STOPPED;
    const std::string& reason = trouble_.empty() ? status_.reason() : trouble_;
    std::fprintf(stderr, "slackline: %s: %s\n", stopped ? "stopped" : "failed", reason.c_str());
    PointToCheckpoint();
    PointToLogs();
    return kExitFailed;
  }

  int Broken(const std::string& reason) {
    progress_.Clear();
    std::fprintf(stderr, "slackline: failed: %s\n", reason.c_str());
    std::fflush(stderr);
    TellScheduler(reason.substr(0, reason.find('\n')), /*failed=*/true);
    StopAll({.leave = kBrokenLeaveMax, .impatient_at = 2});
    PointToCheckpoint();
    PointToLogs();
    return kExitFailed;
  }

  int Interrupted() {
    progress_.Say("Stopping; once more to kill at once.");
    TellScheduler("stopped by a signal to `slackline train`", /*failed=*/false);
    StopAll({.leave = kLeaveMax + last_checkpoint_max()});
    std::fprintf(stderr, "slackline: stopped\n");
    PointToCheckpoint();
    PointToLogs();
    return kExitFailed;
  }

  // How long a run that ends in good order may take for its last checkpoint.
  absl::Duration last_checkpoint_max() const {
    const job::Checkpoint& checkpoint = job_.checkpoint();
    return checkpoint.at_end() ? absl::Seconds(checkpoint.timeout_s()) : absl::ZeroDuration();
  }

  void MakeCheckpoint() {
    const absl::StatusOr<uint64_t> number = cluster_.scheduler().Checkpoint("SIGUSR1 to `slackline train`");
    progress_.Say(number.ok() ? absl::StrCat("SIGUSR1: checkpoint ", *number, " is being made")
                              : absl::StrCat("SIGUSR1: no checkpoint: ", number.status().message()));
  }

  void PointToCheckpoint() {
    const auto list = checkpoint::List(checkpoint::FolderOfRun(job_.checkpoint().folder(), folder_.path()));
    if (list.empty()) return;
    std::fprintf(stderr, "slackline: the last checkpoint is %s; to go on: %s resume %s\n",
                 list.front().path.filename().c_str(), options_.program.c_str(), folder_.path().c_str());
  }

  void TellScheduler(const std::string& reason, bool failed) {
    if (cluster_.has_scheduler()) cluster_.scheduler().StopJob(reason, failed).IgnoreError();
  }

  void StopAll(const Crew::StopDeadlines& deadlines) {
    for (const std::string& line : cluster_.Stop(deadlines)) progress_.Say(line);
  }

  void PointToLogs() { std::fprintf(stderr, "slackline: the logs are in %s\n", (folder_.path() / "logs").c_str()); }

  const TrainOptions& options_;
  bool begun_ = false;
  const job::Job job_;
  const RunFolder folder_;
  SignalQueue& signals_;
  Cluster cluster_;
  Progress progress_;
  wire::GetStatusReply status_;
  std::string trouble_;
  absl::Time trouble_since_;
  absl::Time trouble_deadline_ = absl::InfiniteFuture();
  bool trouble_maybe_done_ = true;  // all of it
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

// Two schedulers must not write into one folder.
absl::Status CheckNobodyRuns(const std::filesystem::path& run, const security::Security& security) {
  const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(run);
  if (!address.ok()) return absl::OkStatus();
  SchedulerClient scheduler(*address, security.To(security::Role::kScheduler));
  const absl::Status answer = scheduler.GetStatus(kStatusTimeout).status();
  // Nobody is there. Whoever refuses us, or does not answer in time, is somebody.
  if (absl::IsUnavailable(answer) && !rpc::IsMistrust(answer)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the run in ", run.string(), " still runs: its scheduler is at ",
                                                    *address, answer.ok() ? "" : ", which says: ", answer.message(),
                                                    "; if that is somebody else, remove ",
                                                    RunFolder::AddressFile(run).string()));
}

// A run of the same folder that was deleted may have left some in checkpoint.folder: they would be taken for this
// one's.
absl::Status CheckUnused(const job::Job& job, const std::filesystem::path& run) {
  const std::filesystem::path folder = checkpoint::FolderOfRun(job.checkpoint().folder(), run);
  if (checkpoint::List(folder).empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(folder.string(), " has checkpoints of another run in ", run.string(),
                                               ": remove them, or choose another run folder"));
}

absl::Status CheckWorkIsLeft(const checkpoint::Choice& from, const job::Job& job) {
  const state::Tasks& tasks = from.manifest.scheduler().tasks();
  const uint32_t epochs = job.training().epochs();
  if (!tasks.complete() || tasks.ranges().epochs_done() < epochs) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "all ", tasks.ranges().epochs_done(), " epochs are done in ", from.path.string(), ", and training.epochs is ",
      epochs, "; to train on: --set training.epochs=", tasks.ranges().epochs_done() + 1));
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
  if (absl::Status unused = CheckUnused(job, folder->path()); !unused.ok()) return Fail(unused, kExitFailed);
  // The processes read this copy: what happens to the original during the run does not reach a restarted worker.
  if (absl::Status status = folder->WriteJob(ToYaml(job)); !status.ok()) return Fail(status, kExitFailed);
  return Run(options, job, *std::move(programs), security->To(security::Role::kScheduler), *std::move(folder), "",
             signals)
      .Execute();
}

int Resume(const ResumeOptions& options) {
  SignalQueue signals;
  const std::filesystem::path run = options.run_folder;
  if (const absl::StatusOr<std::filesystem::path> folder = CheckpointsOfRun(run); !folder.ok()) {
    return Fail(folder.status(), kExitWrongUse);
  }
  absl::StatusOr<job::Job> read = ReadJobFile(run / "job.yaml", options.overrides);
  if (!read.ok()) return Fail(read.status(), kExitWrongUse);
  const job::Job job = Resolve(*read);
  if (absl::Status status = CheckData(job); !status.ok()) return Fail(status, kExitFailed);
  const absl::StatusOr<security::Security> security = OpenSecurity(job);
  if (!security.ok()) return Fail(security.status(), kExitFailed);
  if (absl::Status status = CheckNobodyRuns(run, *security); !status.ok()) return Fail(status, kExitFailed);
  const absl::StatusOr<checkpoint::Choice> choice =
      ChooseCheckpoint(checkpoint::FolderOfRun(job.checkpoint().folder(), run), options.checkpoint);
  if (!choice.ok()) return Fail(choice.status(), kExitFailed);
  for (const std::string& broken : choice->passed_over) {
    std::fprintf(stderr, "slackline: passed over %s\n", broken.c_str());
  }
  if (absl::Status left = CheckWorkIsLeft(*choice, job); !left.ok()) return Fail(left, kExitWrongUse);
  absl::StatusOr<Programs> programs = Programs::BesideThisProgram();
  if (!programs.ok()) return Fail(programs.status(), kExitFailed);
  absl::StatusOr<RunFolder> folder = RunFolder::Reopen(run);
  if (!folder.ok()) return Fail(folder.status(), kExitFailed);
  const absl::StatusOr<job::Job> before = ReadJobFile(run / "job.yaml", {});
  if (!before.ok()) return Fail(before.status(), kExitFailed);
  if (absl::Status status = folder->WriteJob(ToYaml(job)); !status.ok()) return Fail(status, kExitFailed);
  if (!options.quiet) std::printf("Going on from %s\n", choice->path.c_str());
  TrainOptions train;
  train.program = options.program;
  train.job_file = folder->job_file();
  train.quiet = options.quiet;
  const RunFolder left = *folder;
  Run next(train, job, *std::move(programs), security->To(security::Role::kScheduler), *std::move(folder), choice->path,
           signals);
  const int code = next.Execute();
  // What could not go on leaves the run as it was.
  if (next.begun()) return code;
  if (absl::Status status = left.WriteJob(ToYaml(Resolve(*before))); !status.ok()) return Fail(status, kExitFailed);
  return code;
}

}  // namespace slackline::cli

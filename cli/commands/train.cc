#include "cli/commands/train.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/base/signals.h"
#include "cli/commands/checkpoints.h"
#include "cli/run/cluster.h"
#include "cli/run/resume_checks.h"
#include "cli/run/run.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_lock.h"
#include "cli/run/script.h"
#include "common/checkpoint/folder.h"
#include "common/job/job_file.h"
#include "common/log_format.h"
#include "common/logging.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli {
namespace {

absl::StatusOr<RunFolder> MakeRunFolder(const TrainOptions& options, const job::Job& job) {
  if (!options.run_folder.empty()) return RunFolder::Create(options.run_folder);
  if (!job.output().folder().empty()) return RunFolder::Create(job.output().folder());
  return RunFolder::CreateUnused(DefaultRunFolder(job.name(), absl::Now()));
}

}  // namespace

int Train(const TrainOptions& options) {
  // First of all: threads that start later must not take our signals.
  SignalQueue signals;
  absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return ComplainOfWrongUse(read.status());
  const job::Job job = Resolve(*read);
  if (job.output().log_format() == job::Output::JSON) log::WriteJson(job.name());
  if (absl::Status status = CheckWorkers(options.script, job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = worker::CheckJob(job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = CheckData(job); !status.ok()) return Complain(status);
  if (absl::Status status = CheckWeights(job); !status.ok()) return Complain(status);
  if (absl::Status status = CheckNetwork(job); !status.ok()) return ComplainOfWrongUse(status);
  const absl::StatusOr<security::Security> security = OpenSecurity(job);
  if (!security.ok()) return ComplainOfWrongUse(security.status());
  absl::StatusOr<Programs> programs = Programs::BesideThisProgram(job);
  if (!programs.ok()) return Fail(programs.status());
  absl::StatusOr<RunFolder> folder = MakeRunFolder(options, job);
  if (!folder.ok()) return Complain(folder.status());
  const absl::StatusOr<RunLock> lock = RunLock::Take(folder->path());
  if (!lock.ok()) return Complain(lock.status());
  if (!lock->by_file().empty()) log::Warning(lock->by_file());
  if (absl::Status unused = CheckUnused(job, folder->path()); !unused.ok()) return Fail(unused);
  // The processes read this copy: what happens to the original during the run does not reach a restarted worker.
  if (absl::Status status = folder->WriteJob(ToYaml(job)); !status.ok()) return Fail(status);
  if (absl::Status status = KeepScript(options.script, folder->path()); !status.ok()) return Fail(status);
  Share share = WholeJob(job);
  share.script = options.script;
  Cluster cluster(job, *std::move(programs), security->To(security::Role::kScheduler), *folder, /*checkpoint=*/"",
                  std::move(share), signals);
  const RunOptions run{.start = StartTextOf(options.program, options.script, options.job_file, options.overrides),
                       .quiet = options.quiet,
                       .has_scripts = !options.script.empty(),
                       .resume = absl::StrCat(options.program, " resume")};
  return Run(run, job, *folder, signals, cluster).Execute();
}

int Resume(const ResumeOptions& options) {
  SignalQueue signals;
  const std::filesystem::path run = options.run_folder;
  const StartText start = StartTextOf(options.program, options.script, (run / "job.yaml").string(), {});
  if (const absl::StatusOr<std::filesystem::path> folder = CheckpointsOfRun(run); !folder.ok()) {
    return ComplainOfWrongUse(folder.status());
  }
  absl::StatusOr<job::Job> read = ReadJobFile(run / "job.yaml", options.overrides);
  if (!read.ok()) return ComplainOfWrongUse(read.status());
  const job::Job job = Resolve(*read);
  if (job.output().log_format() == job::Output::JSON) log::WriteJson(job.name());
  if (absl::Status status = CheckWorkers(options.script, job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = worker::CheckJob(job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = CheckData(job); !status.ok()) return Complain(status);
  if (absl::Status status = CheckNetwork(job); !status.ok()) return ComplainOfWrongUse(status);
  const absl::StatusOr<security::Security> security = OpenSecurity(job);
  if (!security.ok()) return ComplainOfWrongUse(security.status());
  const absl::StatusOr<job::Job> before = ReadJobFile(run / "job.yaml", {});
  if (!before.ok()) return Fail(before.status());
  if (absl::Status kept = CheckModelKept(Resolve(*before), job); !kept.ok()) return ComplainOfWrongUse(kept);
  absl::StatusOr<Programs> programs = Programs::BesideThisProgram(job);
  if (!programs.ok()) return Fail(programs.status());
  // The lock is the first trace in the folder: all that may be refused comes before.
  if (absl::Status status = CheckNobodyRuns(run, *security); !status.ok()) return ComplainOfWrongUse(status);
  const std::filesystem::path checkpoints = checkpoint::FolderOfRun(job.checkpoint().folder(), run);
  const uint64_t newest = checkpoint::LastNumber(checkpoints);
  const absl::StatusOr<checkpoint::Choice> choice = ChooseCheckpoint(checkpoints, options.checkpoint);
  if (absl::IsNotFound(choice.status()) && options.checkpoint.empty()) {
    return ComplainOfWrongUse(
        absl::NotFoundError(absl::StrCat(choice.status().message(), "; to start again: ", start.Whole())));
  }
  if (!choice.ok()) return Complain(choice.status());
  for (const std::string& broken : choice->passed_over) {
    log::Warning("skipped a damaged checkpoint: ", broken);
  }
  if (absl::Status left = CheckWorkIsLeft(*choice, job); !left.ok()) return ComplainOfWrongUse(left);
  const wire::RegisterWorkerRequest& first = choice->manifest.scheduler().first_worker();
  if (absl::Status kept = CheckImagesKept(first.train_samples(), first.data_fingerprint(), job); !kept.ok())
    return ComplainOfWrongUse(kept);
  const absl::StatusOr<RunLock> lock = RunLock::Take(run);
  if (!lock.ok()) return Complain(lock.status());
  if (!lock->by_file().empty()) log::Warning(lock->by_file());
  if (checkpoint::LastNumber(checkpoints) != newest) {
    return Fail(
        absl::AbortedError(absl::StrCat("another process has continued the run in ", run.string(), " meanwhile")));
  }
  absl::StatusOr<RunFolder> folder = RunFolder::Reopen(run);
  if (!folder.ok()) return Fail(folder.status());
  if (absl::Status status = folder->WriteJob(ToYaml(job)); !status.ok()) return Fail(status);
  if (absl::Status status = KeepScript(options.script, run); !status.ok()) return Fail(status);
  if (!options.quiet) std::printf("Going on from %s\n", choice->path.c_str());
  Share share = WholeJob(job);
  share.script = options.script;
  Cluster cluster(job, *std::move(programs), security->To(security::Role::kScheduler), *folder, choice->path,
                  std::move(share), signals);
  const RunOptions again{.start = start,
                         .quiet = options.quiet,
                         .has_scripts = !options.script.empty(),
                         .resume = absl::StrCat(options.program, " resume"),
                         .resume_settings = options.overrides};
  Run next(again, job, *folder, signals, cluster);
  const int code = next.Execute();
  // What could not go on leaves the run as it was.
  if (next.begun()) return code;
  if (absl::Status status = folder->WriteJob(ToYaml(Resolve(*before))); !status.ok()) return Fail(status);
  return code;
}

}  // namespace slackline::cli

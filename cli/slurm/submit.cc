#include "cli/slurm/submit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/base/replace_file.h"
#include "cli/base/sibling.h"
#include "cli/base/signals.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_folder.h"
#include "cli/run/slurm_queue.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/launch.h"
#include "cli/slurm/slurm_programs.h"
#include "cli/slurm/wait.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli::slurm {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kSubmitMax = absl::Minutes(5);

// For a shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// For `slackline slurm run`, which runs in a folder that may be another one.
std::vector<std::string> ScriptFlags(const ScriptOptions& script) {
  std::vector<std::string> flags;
  if (script.script.empty()) return flags;
  flags = {"--script", Quoted(fs::absolute(script.script))};
  if (!script.python.empty()) {
    const bool name = script.python.find('/') == std::string::npos;
    flags.insert(flags.end(), {"--python", Quoted(name ? script.python : fs::absolute(script.python).string())});
  }
  for (const std::string& argument : script.arguments) flags.push_back("--script-argument=" + Quoted(argument));
  return flags;
}

bool IsArray(const std::vector<std::string>& sbatch) { return !FirstTask(sbatch).empty(); }

// The components after the first get no #SBATCH lines of the script.
std::vector<std::string> ForAllComponents(const std::vector<std::string>& sbatch) {
  std::vector<std::string> options;
  for (const std::string& argument : sbatch) {
    options.push_back(argument);
    if (argument == ":") options.insert(options.end(), {"--no-kill", "--ntasks-per-node=1"});
  }
  return options;
}

// Settings that tasks of an array have for themselves, for the batch script: the copy of the job file has all others.
// `first`: number of the first task, for which `job` was read from `job_file`. A path counts from that file here, and
// from the copy there.
std::vector<std::string> SettingsOfTasks(const std::vector<std::string>& overrides, const std::string& first,
                                         const job::Job& job, const std::string& job_file) {
  const fs::path folder = fs::absolute(job_file).parent_path();
  std::vector<std::string> kept;
  for (const std::string& setting : overrides) {
    if (first.empty() || !absl::StrContains(setting, "%a")) continue;
    const std::pair<std::string, std::string> sides = absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const std::string here = (folder / sides.second).lexically_normal();
    const std::string of_first = absl::StrCat("\"", SettingsOfTask({here}, first).front(), "\"");  // as in YAML
    const auto is_path = [&](const SettingView& view) { return view.key == sides.first && view.value == of_first; };
    const std::vector<SettingView> all = SettingsOf(job);
    kept.push_back(std::any_of(all.begin(), all.end(), is_path) ? absl::StrCat(sides.first, "=", here) : setting);
  }
  return kept;
}

// The run has ended: two jobs must not go on with it.
absl::Status CheckOver(const fs::path& run, const job::Job& job) {
  const std::optional<QueuedJob> queued = FindInQueue(run);
  if (queued && !queued->ends()) {
    return absl::FailedPreconditionError(absl::StrCat("the run in ", run.string(), " is not over: ", queued->Describe(),
                                                      "; allowed is --resume when it has ended (scancel ",
                                                      queued->number, " ends it, saved)"));
  }
  const absl::StatusOr<security::Security> security = OpenSecurity(Resolve(job));
  if (!security.ok()) return security.status();
  return CheckNobodyRuns(run, *security);
}

// Returns whether a submission of the run was begun, and no number of a job was noted.
bool IsHalfSubmitted(const fs::path& run) {
  std::error_code error;
  return fs::exists(BatchScriptOf(run), error) && !SlurmJobOf(run);
}

// Returns the number of the job that sbatch has submitted; `answer` is what it said.
//   kUnavailable       SLURM has no job of the run
//   kDeadlineExceeded  SLURM may have one
absl::StatusOr<std::string> NumberOrFound(absl::StatusOr<std::string> answer, const fs::path& run) {
  if (answer.ok()) return answer;
  // A slow sbatch may have submitted the job, although it did not say so.
  const absl::StatusOr<std::optional<std::string>> found = FindByScript(run);
  if (found.ok() && *found) return **found;
  if (found.ok() && absl::IsUnavailable(answer.status())) return answer;
  return absl::DeadlineExceededError(absl::StrCat(answer.status().message(), "; SLURM may have the job: look for ",
                                                  BatchScriptOf(run).string(),
                                                  " in the output of squeue --me --format='%i %o'"));
}

}  // namespace

std::string FirstTask(const std::vector<std::string>& sbatch) {
  for (auto argument = sbatch.begin(); argument != sbatch.end() && *argument != ":"; ++argument) {
    absl::string_view tasks = *argument;
    if (!absl::ConsumePrefix(&tasks, "--array") && !absl::ConsumePrefix(&tasks, "-a")) continue;
    if (tasks.empty() && std::next(argument) != sbatch.end()) tasks = *std::next(argument);
    absl::ConsumePrefix(&tasks, "=");
    const size_t digits = std::min(tasks.find_first_not_of("0123456789"), tasks.size());
    return digits == 0 ? "0" : std::string(tasks.substr(0, digits));
  }
  return "";
}

std::string BatchScript(const SubmitOptions& options, const std::string& name, const std::string& program,
                        const std::string& folder) {
  std::vector<std::string> run = {Quoted(program), "slurm", "run"};
  run.push_back(options.resume ? "--resume" : Quoted(absl::StrCat(folder, "/submit/job.yaml")));
  // A task of an array has a folder of its own.
  const bool array = IsArray(options.sbatch);
  run.insert(run.end(),
             {"--run-folder", array ? absl::StrCat(Quoted(folder + "/"), "\"$SLURM_ARRAY_TASK_ID\"") : Quoted(folder)});
  for (const std::string& setting : options.overrides) run.insert(run.end(), {"--set", Quoted(setting)});
  if (!options.interface.empty()) run.insert(run.end(), {"--interface", Quoted(options.interface)});
  run.insert(run.end(), {"--stop-before", absl::StrCat(options.stop_before_s)});
  if (!options.requeue) run.push_back("--no-requeue");
  const std::vector<std::string> workers = ScriptFlags(options.script);
  run.insert(run.end(), workers.begin(), workers.end());
  // The "=" is needed, since each value begins like an option.
  for (const std::string& option : options.srun) run.push_back(absl::StrCat("--srun-option=", Quoted(option)));
  std::string script = "#!/bin/bash\n";
  absl::StrAppend(&script, "#SBATCH --job-name=", name, "\n");
  absl::StrAppend(&script, "#SBATCH --ntasks-per-node=1\n");
  absl::StrAppend(&script, "#SBATCH --no-kill\n");
  absl::StrAppend(&script, options.requeue ? "#SBATCH --requeue\n" : "#SBATCH --no-requeue\n");
  absl::StrAppend(&script, "#SBATCH --open-mode=append\n");
  absl::StrAppend(&script, "#SBATCH --output=\"", absl::StrReplaceAll(folder, {{"%", "%%"}}), "/submit/",
                  array ? "slurm-%A_%a.out" : "slurm-%j.out", "\"\n");
  absl::StrAppend(&script, "#SBATCH --signal=B:USR1@", static_cast<int64_t>(std::ceil(options.stop_before_s)), "\n");
  absl::StrAppend(&script, "exec ", absl::StrJoin(run, " "), "\n");
  return script;
}

int Submit(const SubmitOptions& options) {
  std::optional<SignalQueue> signals;
  if (options.wait) signals.emplace();
  if (options.resume == !options.job_file.empty()) {
    return Complain(absl::InvalidArgumentError(
        options.resume ? "found a job file and --resume; allowed is --resume with --run-folder, which has its job"
                       : "found no job file; allowed is one, or --resume with --run-folder"));
  }
  if (options.resume && options.run_folder.empty()) {
    return Complain(
        absl::InvalidArgumentError("found --resume without --run-folder; allowed is the folder of the run"));
  }
  if (options.resume && IsArray(options.sbatch)) {
    return Complain(
        absl::InvalidArgumentError("found --resume with an array; allowed is the folder of one of its tasks"));
  }
  if (options.wait) {
    if (absl::Status followed = CheckFollowed(options.sbatch); !followed.ok()) return Complain(followed);
  }
  const absl::StatusOr<std::vector<std::string>> script =
      options.resume ? CommandToGoOn(options.script, options.run_folder) : CommandOf(options.script);
  if (!script.ok()) return ComplainOfWrongUse(script.status());
  // The copy of the job file has the settings of the array's first task, which the batch script replaces.
  const std::string first = FirstTask(options.sbatch);
  std::vector<std::string> overrides = SettingsOfTask(options.overrides, first);
  const absl::StatusOr<job::Job> job =
      ReadJobOfWorkers(*script, options.resume ? options.run_folder + "/job.yaml" : options.job_file, overrides);
  if (!job.ok()) {
    const bool wants_array = first.empty() && absl::StrContains(absl::StrJoin(options.overrides, " "), "%a");
    return Complain(absl::InvalidArgumentError(
        absl::StrCat(job.status().message(),
                     wants_array ? "; %a is the number of a task, and needs an array: -- --array=1-5" : "")));
  }
  if (absl::Status status = CheckWorkers(*script, *job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = worker::CheckJob(*job); !status.ok()) return ComplainOfWrongUse(status);
  SubmitOptions scripted = options;
  if (!options.resume) scripted.overrides = SettingsOfTasks(options.overrides, first, *job, options.job_file);
  const absl::StatusOr<std::filesystem::path> program = Sibling("slackline");
  if (!program.ok()) return Complain(program.status());
  std::string wanted = options.run_folder.empty() ? job->output().folder() : options.run_folder;
  if (options.dry_run) {
    if (wanted.empty()) wanted = DefaultRunFolder(job->name(), absl::Now());
    std::fputs(BatchScript(scripted, job->name(), *program, fs::absolute(wanted).lexically_normal()).c_str(), stdout);
    return kExitDone;
  }
  fs::path folder = wanted;
  std::error_code error;
  const bool half_submitted = !wanted.empty() && IsHalfSubmitted(fs::absolute(wanted).lexically_normal());
  if (half_submitted) {
    folder = fs::absolute(wanted).lexically_normal();
    const absl::StatusOr<std::optional<std::string>> number = FindByScript(folder);
    if (!number.ok()) return Fail(number.status());
    if (*number) {
      if (absl::Status noted = NoteSlurmJob(folder, **number); !noted.ok()) return Fail(noted);
      std::printf("SLURM has job %s of this run already; run folder %s\n", (*number)->c_str(), folder.c_str());
      return options.wait ? FollowJob(folder, /*from_start=*/true, *signals) : kExitDone;
    }
  }
  if (!options.resume) {
    const absl::StatusOr<RunFolder> made = wanted.empty()
                                               ? RunFolder::CreateUnused(DefaultRunFolder(job->name(), absl::Now()))
                                           : half_submitted ? RunFolder::CreateSubmitted(wanted)
                                                            : RunFolder::Create(wanted);
    if (!made.ok()) return Complain(made.status());
    folder = made->path();
    // The run itself makes it; this was to know that nobody else has it.
    fs::remove(folder / "logs", error);
  }
  folder = fs::absolute(folder).lexically_normal();
  if (options.resume) {
    if (absl::Status over = CheckOver(folder, *job); !over.ok()) return ComplainOfWrongUse(over);
  }
  const fs::path submit = folder / "submit";
  fs::create_directories(submit, error);
  if (error) return Fail(absl::UnavailableError(absl::StrCat("cannot make ", submit.string(), ": ", error.message())));
  if (!options.resume) {
    // With the paths that are meant from here; and what only `slackline slurm run` knows to be the default stays so.
    job::Job resolved = *job;
    if (!resolved.cluster().has_worker_restarts_max())
      resolved.mutable_cluster()->set_worker_restarts_max(kWorkerRestarts);
    if (absl::Status copied = ReplaceFile(submit / "job.yaml", ToYaml(resolved)); !copied.ok()) return Fail(copied);
  }
  const absl::Status written = ReplaceFile(BatchScriptOf(folder), BatchScript(scripted, job->name(), *program, folder));
  if (!written.ok()) return Fail(written);
  std::vector<std::string> command = {"sbatch", "--parsable"};
  const std::vector<std::string> more = ForAllComponents(options.sbatch);
  command.insert(command.end(), more.begin(), more.end());
  command.push_back(BatchScriptOf(folder));
  ForgetSlurmJob(folder);
  const absl::StatusOr<std::string> number = NumberOrFound(Ask(command, submit / "sbatch.log", kSubmitMax), folder);
  if (!number.ok()) {
    // The folder may be used again, unless SLURM may have the job.
    if (!options.resume && absl::IsUnavailable(number.status())) fs::remove_all(folder, error);
    return Fail(number.status());
  }
  if (absl::Status noted = NoteSlurmJob(folder, *number); !noted.ok()) log::Warning(std::string(noted.message()));
  std::printf("Submitted job %s; run folder %s\nIts output: %s\n", number->c_str(), folder.c_str(),
              (submit / "slurm-*.out").c_str());
  return options.wait ? FollowJob(folder, /*from_start=*/true, *signals) : kExitDone;
}

}  // namespace slackline::cli::slurm

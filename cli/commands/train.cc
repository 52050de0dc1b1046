#include "cli/commands/train.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/complain.h"
#include "cli/base/signals.h"
#include "cli/commands/checkpoints.h"
#include "cli/commands/service.h"
#include "cli/commands/shared_options.h"
#include "cli/run/cluster.h"
#include "cli/run/run.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_lock.h"
#include "cli/run/script.h"
#include "cli/run/tracking.h"
#include "common/checkpoint/folder.h"
#include "common/job/job_file.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli {
namespace {

const HelpText kTrainHelp = {
    .example = "slackline train job.yaml --set consistency.mode=bsp",
    .most_used = "--set --run-folder --quiet",
    .text =
        "Starts a scheduler, the servers and the workers on this machine, shows the progress, and stops all of them "
        "at the end. Every setting of the job file has a default, so an empty file is a valid job. The run folder "
        "gets the weights, figures, events and logs (slackline help run-folder).\n\n"
        "If a worker crashes, the run continues without it. cluster.worker_restarts_max restarts crashed workers. "
        "The first Ctrl-C saves a checkpoint and stops the run. A second Ctrl-C stops the run at once.",
    .examples =
        "slackline train examples/fashion-mnist-mlp.yaml\n"
        "slackline train examples/bsp.yaml --set optimizer.lr=0.1\n"
        "slackline train job.yaml --run-folder runs/first --quiet"};

const HelpText kLaunchHelp = {
    .example = "slackline launch train.py job.yaml --workers 4",
    .most_used = "--workers --servers --set",
    .groups = {{"Script", "--per-node --node-group --python"}, {"Output", "--run-folder --quiet"}},
    .text =
        "Each worker is a process that runs the script. The script calls slackline.connect(), which finds the job, "
        "the scheduler and the worker's name. The script's output goes to the logs in the run folder. All else is as "
        "with `slackline train`.\n\n"
        "If the job file has no model.kind, the kind is `external`: the script brings the model and the data. "
        "Slackline passes everything after -- to the script.",
    .examples =
        "slackline launch train.py job.yaml --per-node 8\n"
        "slackline launch train.py job.yaml --per-node 8 --node-group\n"
        "slackline launch train.py job.yaml --python venv/bin/python -- --depth 18"};

const HelpText kResumeHelp = {
    .example = "slackline resume runs/first",
    .most_used = "--checkpoint --set --quiet",
    .groups = {{"Python scripts", "--script --python"}},
    .text =
        "Continues a run that was stopped or failed, in the same run folder, from the newest complete checkpoint. The "
        "job is job.yaml of the run folder. --set changes it from there on, for example the numbers of servers and "
        "workers, or training.epochs to train for longer.\n\n"
        "If the run cannot continue, the command names the reason, changes nothing, and exits with code 2. "
        "More: slackline help resume.",
    .examples =
        "slackline resume runs/first --set cluster.workers=8 --set cluster.servers=4\n"
        "slackline resume runs/first --checkpoint 3\n"
        "slackline resume runs/first --checkpoint best\n"
        "slackline resume runs/mine --script new/train.py"};

struct TrainOptions {
  // Name by which the user called this program; for the commands that are proposed at the end.
  std::string program = "slackline";
  std::string job_file;
  std::vector<std::string> overrides;
  // Path of the run folder. Empty: as the job says.
  std::string run_folder;
  bool quiet = false;
  // Command that starts a worker, if the workers are scripts. Empty: the workers' program.
  std::vector<std::string> script = {};
};

struct ResumeOptions {
  std::string program = "slackline";
  std::string run_folder;
  // Checkpoint to resume from: its name or number in the run's folder of checkpoints, "best", or a path (with a / in
  // it). Empty: the newest that is whole.
  std::string checkpoint;
  std::vector<std::string> overrides;
  bool quiet = false;
  // Same as TrainOptions::script.
  std::vector<std::string> script = {};
};

struct LaunchOptions {
  // Job file, overrides and run folder.
  TrainOptions train;
  ScriptOptions script;
  // Numbers of servers and workers. Absent: as the job file says.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
  // Number of scripts on this machine, each with its part of the GPUs and cores. Absent: as the job file says.
  std::optional<uint32_t> per_node;
  // The scripts of this machine are one worker.
  bool node_group = false;
};

void AddRunFolder(CLI::App& command, std::string& folder, const char* fallback) {
  command.add_option("--run-folder", folder, std::string("Folder for the results, new or empty. Default: ") + fallback)
      ->type_name("FOLDER")
      ->check(FolderMistake);
}

absl::StatusOr<RunFolder> MakeRunFolder(const TrainOptions& options, const job::Job& job) {
  if (!options.run_folder.empty()) return RunFolder::Create(options.run_folder);
  if (!job.output().folder().empty()) return RunFolder::Create(job.output().folder());
  return RunFolder::CreateUnused(DefaultRunFolder(job.name(), absl::Now()));
}

int Train(const TrainOptions& options) {
  // First of all: threads that start later must not take our signals.
  SignalQueue signals;
  absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return ComplainOfWrongUse(read.status());
  const job::Job job = Resolve(*read);
  if (job.output().log_format() == job::Output::JSON) log::WriteJson(job.name());
  if (const int code = CheckStart(options.script, job); code != kExitDone) return code;
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
                       .resume = absl::StrCat(options.program, " resume"),
                       .command = options.script.empty() ? "`slackline train`" : "`slackline launch`"};
  Run only(run, job, *folder, signals, cluster);
  const int code = only.Execute();
  if (only.begun()) TrackRun(job, options.script, *folder, signals);
  return code;
}

int Resume(ResumeOptions options, const ScriptOptions& script) {
  if (const std::optional<NamedJob> job = JobOfTarget(options.run_folder)) {
    if (options.checkpoint.empty() && script.script.empty() && script.python.empty() && script.arguments.empty()) {
      return ResumeJobOfService(*job, options.overrides);
    }
    return ComplainOfWrongUse(absl::InvalidArgumentError(
        "found --checkpoint, or a script, for a job of the service; allowed is --set: submit a new job for others"));
  }
  absl::StatusOr<std::vector<std::string>> command = CommandToGoOn(script, options.run_folder);
  if (!command.ok()) return ComplainOfWrongUse(command.status());
  if (absl::Status found = CheckInterpreter(*command); !found.ok()) return Complain(found);
  options.script = *std::move(command);
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
  if (absl::Status status = CheckTrackers(job, options.script); !status.ok()) return Fail(status);
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
                         .resume_settings = options.overrides,
                         .command = "`slackline resume`"};
  Run next(again, job, *folder, signals, cluster);
  const int code = next.Execute();
  // What could not go on leaves the run as it was.
  if (next.begun()) {
    TrackRun(job, options.script, *folder, signals);
    return code;
  }
  if (absl::Status status = folder->WriteJob(ToYaml(Resolve(*before))); !status.ok()) return Fail(status);
  return code;
}

int Launch(const LaunchOptions& options) {
  TrainOptions train = options.train;
  absl::StatusOr<std::vector<std::string>> command = CommandOf(options.script);
  if (!command.ok()) return ComplainOfWrongUse(command.status());
  if (absl::Status found = CheckInterpreter(*command); !found.ok()) return Complain(found);
  train.script = *std::move(command);
  if (options.servers) train.overrides.push_back(absl::StrCat("cluster.servers=", *options.servers));
  if (options.workers) train.overrides.push_back(absl::StrCat("cluster.workers=", *options.workers));
  if (options.per_node) train.overrides.push_back(absl::StrCat("worker.per_node=", *options.per_node));
  if (options.node_group) train.overrides.push_back("worker.node_group=true");
  if (!options.workers && (options.per_node || options.node_group)) {
    // This machine is one node.
    train.overrides.push_back(absl::StrCat("cluster.workers=", options.node_group ? 1 : *options.per_node));
  }
  const absl::StatusOr<job::Job> job = ReadJobOfWorkers(train.script, train.job_file, train.overrides);
  if (!job.ok()) return ComplainOfWrongUse(job.status());
  return Train(train);
}

}  // namespace

int CheckStart(const std::vector<std::string>& script, const job::Job& job) {
  if (absl::Status status = CheckWorkers(script, job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = worker::CheckJob(job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = CheckData(job); !status.ok()) return Complain(status);
  if (absl::Status status = CheckWeights(job); !status.ok()) return Complain(status);
  if (absl::Status status = CheckNetwork(job); !status.ok()) return ComplainOfWrongUse(status);
  if (absl::Status status = CheckTrackers(job, script); !status.ok()) return Fail(status);
  return kExitDone;
}

AddedCommand AddTrain(CLI::App& app, const char* program) {
  const auto options = std::make_shared<TrainOptions>();
  options->program = program;
  CLI::App* command = app.add_subcommand("train", "Train the model of a job file on this machine");
  AddJobFile(*command, options->job_file);
  AddOverrides(*command, options->overrides);
  AddRunFolder(*command, options->run_folder, "output.folder, or runs/NAME-DATE-TIME");
  AddQuiet(*command, options->quiet);
  SetHelp(*command, kTrainHelp);
  return {command, [options] { return Train(*options); }};
}

AddedCommand AddLaunch(CLI::App& app, const char* program) {
  const auto options = std::make_shared<LaunchOptions>();
  options->train.program = program;
  CLI::App* command = app.add_subcommand("launch", "Run a job whose workers run a Python script");
  command->add_option("SCRIPT", options->script.script, "Python script of the workers")->required();
  AddJobFile(*command, options->train.job_file);
  AddScript(*command, options->script);
  command->add_option("--servers", options->servers, "Number of servers, instead of cluster.servers")
      ->check(CLI::Range(1, 4096));
  command->add_option("--workers", options->workers, "Number of workers, instead of cluster.workers")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--per-node", options->per_node,
                   "Number of workers on this machine, each with an equal part of its GPUs and cores, instead of "
                   "worker.per_node and cluster.workers")
      ->check(CLI::Range(1, 64));
  command->add_flag(
      "--node-group", options->node_group,
      "Make the scripts of --per-node one worker: they add up their gradients, and one of them pushes and "
      "pulls, as with worker.node_group");
  AddOverrides(*command, options->train.overrides);
  AddRunFolder(*command, options->train.run_folder, "as with `slackline train`");
  AddQuiet(*command, options->train.quiet);
  SetHelp(*command, kLaunchHelp);
  return {command, [options] { return Launch(*options); }};
}

AddedCommand AddResume(CLI::App& app, const char* program) {
  const auto options = std::make_shared<ResumeOptions>();
  const auto script = std::make_shared<ScriptOptions>();
  options->program = program;
  CLI::App* command = app.add_subcommand("resume", "Continue a run from a checkpoint");
  command->add_option("RUN", options->run_folder, "Run folder, or number of a job of the service")->required();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Name, number or path of a checkpoint of the run, or `best` (needs "
                   "checkpoint.keep_best). Default: the newest complete checkpoint")
      ->type_name("CHECKPOINT");
  AddOverrides(*command, options->overrides);
  command
      ->add_option("--script", script->script,
                   "Another script for a run of `slackline launch`. Default: the script of the run, with its arguments")
      ->type_name("SCRIPT");
  AddScript(*command, *script);
  AddQuiet(*command, options->quiet);
  SetHelp(*command, kResumeHelp);
  return {command, [options, script] { return Resume(*options, *script); }};
}

}  // namespace slackline::cli

// The `slackline` command.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "cli/checkpoints.h"
#include "cli/cluster.h"
#include "cli/complain.h"
#include "cli/credentials.h"
#include "cli/doctor/command.h"
#include "cli/evaluate.h"
#include "cli/experiment.h"
#include "cli/launch.h"
#include "cli/prepare/command.h"
#include "cli/run_checks.h"
#include "cli/script.h"
#include "cli/servers.h"
#include "cli/sibling.h"
#include "cli/slurm/command.h"
#include "cli/status.h"
#include "cli/train.h"
#include "common/folder_name.h"
#include "common/http_address.h"
#include "common/job_file.h"
#include "common/log_format.h"
#include "common/output.h"
#include "common/rpc/channel.h"
#include "common/security/check_credentials.h"
#include "common/slowdown.h"
#include "common/version_text.h"
#include "worker/job_checks.h"

namespace slackline::cli {
namespace {

constexpr char kAbout[] =
    "Trains neural networks asynchronously through sharded parameter servers.\n"
    "Exit codes: 0 done, 2 wrong use (flags or job file), 1 failed or stopped.";

constexpr char kTrainHelp[] = R"(
The job file says everything; every setting has a default, and an empty file is a valid job. `slackline train`
starts a scheduler, the servers and the workers on this machine, shows the progress, and stops them all at the end.
The run folder holds job.yaml (as resolved), metrics.csv, TensorBoard events, model.safetensors, and the log of each
process. A worker that dies is named, and the run goes on; cluster.worker_restarts_max starts it again.
Ctrl-C stops the run in good order, a second one at once.

Examples
  slackline train examples/fashion-mnist-mlp.yaml
  slackline train examples/bsp.yaml --set cluster.workers=4 --set optimizer.lr=0.1
  slackline train job.yaml --run-folder runs/first --quiet)";

constexpr char kLaunchHelp[] = R"(
Each worker is a process of the script, which calls slackline.connect() and finds the job, the scheduler and its own
name in its environment; its words are in the run folder's logs. All else is as with `slackline train`. Where the job
file names no model.kind it is `external`: the script brings the model and the data. What comes after -- is the script's.

Examples
  slackline launch train.py job.yaml
  slackline launch train.py --servers 2 --workers 4 job.yaml --python venv/bin/python -- --depth 18)";

constexpr char kCheckHelp[] = R"(
Prints the job with every default written out. A mistake is named with its line, what was found, and what is allowed.

Examples
  slackline check examples/fashion-mnist-cnn.yaml
  slackline check job.yaml --set consistency.mode=bsp
  slackline check job.yaml --for train)";

constexpr char kStatusHelp[] = R"(
Examples
  slackline status runs/fashion-mnist-mlp-20250131-120000
  slackline status 127.0.0.1:34567 --watch
  slackline status runs/first --json | jq .workers
  slackline status node1:7000 --job job.yaml
  slackline status http://127.0.0.1:8080/ --watch)";

constexpr char kCredentialsHelp[] = R"(
Certificates and keys for security.mode: tls, in a folder of their own; or a token for security.mode: token. Only you can
read them; nothing that is there is overwritten. docs/security.md says what each mode protects.

Examples
  slackline credentials credentials --job first --days 30
  slackline credentials credentials --job first --renew
  slackline credentials --token job.token)";

constexpr char kResumeHelp[] = R"(
Goes on with a run that was stopped, has failed, or whose machines are gone, in its own run folder: from the newest
checkpoint that is whole, or from the one that is named. The job is the run's job.yaml; --set changes it from there on,
such as the numbers of servers and workers, or training.epochs to train for longer. What cannot be gone on with is
refused with exit code 2, and nothing of the run is touched.

Examples
  slackline resume runs/first
  slackline resume runs/first --set cluster.workers=8 --set cluster.servers=4
  slackline resume runs/first --checkpoint 3
  slackline resume runs/first --checkpoint best
  slackline resume runs/mine --script new/train.py)";

constexpr char kCheckpointHelp[] = R"(
Training goes on meanwhile. Prints the folder of the checkpoint once it is whole; exits with 1 where there is none.
SIGUSR1 to `slackline train` or to the scheduler asks for one, too.

Examples
  slackline checkpoint runs/first
  slackline checkpoint 127.0.0.1:34567)";

constexpr char kCheckpointsHelp[] = R"(
Examples
  slackline checkpoints runs/first
  slackline checkpoints runs/first --verify)";

constexpr char kExportHelp[] = R"(
The file has the model's own names: safetensors.torch.load_file() and load_state_dict() take it.

Examples
  slackline export runs/first model.safetensors
  slackline export runs/first model.safetensors --checkpoint best
  slackline export runs/first/checkpoints/checkpoint-000003 model.safetensors)";

constexpr char kServersHelp[] = R"(
Shards move one server after the other: they are copied while training goes on, then change hands within a moment.
`slackline train` starts servers that are added; where it does not run the job, start them like the others:
slackline-ps JOB.yaml --scheduler RUN/scheduler.address --name NAME. Not with durability.mode replicated.

Examples
  slackline servers add runs/first
  slackline servers add runs/first --count 2 --wait 0
  slackline servers drain runs/first ps-1)";

constexpr char kJobHelp[] = "The job file, whose `security` says how to connect; default: that of the run folder";

constexpr char kSetHelp[] = "Override a setting of the job file, e.g. optimizer.lr=0.1 or model.hidden=[64,32]";

// What delay compensation may take, as a line of YAML's comments; empty without it.
std::string PriceOf(const job::Consistency& consistency) {
  if (consistency.delay_compensation() == job::DelayCompensation::NONE) return "";
  const bool adaptive = consistency.delay_compensation() == job::DelayCompensation::ADAPTIVE;
  const uint64_t bytes = sizeof(float) * (uint64_t{consistency.dc_references_max()} + (adaptive ? 1 : 0));
  return absl::StrCat("# Delay compensation takes at most ", bytes, " bytes for each parameter of the model, over all ",
                      "servers: ", consistency.dc_references_max(), " versions", adaptive ? " and a mean square" : "",
                      ".\n");
}

struct CheckOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  bool only_fingerprint = false;
  // "train" or "simulate": what this machine must be able to do with the job. Empty: nothing, it is told what it
  // cannot.
  std::string purpose;
};

// Why this machine cannot do with the job what it must, one reason a line; empty where it can.
std::string WhyNotHere(const job::Job& job, const std::string& purpose) {
  std::vector<absl::Status> found = CheckHere(job, purpose == "simulate" ? Purpose::kSimulate : Purpose::kTrain);
  if (purpose == "train") {
    found.push_back(CheckWorkers({}, job));
    found.push_back(Programs::BesideThisProgram().status());
  }
  std::string lines;
  for (const absl::Status& one : found) {
    if (!one.ok()) absl::StrAppend(&lines, std::string(one.message()), "\n");
  }
  return lines;
}

int Check(const CheckOptions& options) {
  const std::string& job_file = options.job_file;
  const absl::StatusOr<job::Job> job = ReadJobFile(job_file, options.overrides);
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", std::string(job.status().message()).c_str());
    return kExitWrongUse;
  }
  if (options.only_fingerprint) {
    std::printf("%016" PRIx64 "\n", Fingerprint(*job));
    return kExitDone;
  }
  if (const absl::Status model = worker::CheckJob(Resolve(*job)); !model.ok()) {
    std::fprintf(stderr, "%s: %s\n", job_file.c_str(), std::string(model.message()).c_str());
    return kExitWrongUse;
  }
  if (const absl::Status files = security::CheckCredentials(Resolve(*job), absl::Now()); !files.ok()) {
    std::fprintf(stderr, "%s\n", std::string(files.message()).c_str());
    return kExitWrongUse;
  }
  std::string warnings;
  if (const std::string doubt = SlowdownDoubt(*job); !doubt.empty())
    absl::StrAppend(&warnings, "# Warning: ", doubt, ".\n");
  // A job file may be checked on a machine that has no data, or another network.
  const std::string not_here = WhyNotHere(Resolve(*job), options.purpose);
  if (!options.purpose.empty() && !not_here.empty()) {
    std::fprintf(stderr, "%s: %s", job_file.c_str(), not_here.c_str());
    return kExitFailed;
  }
  for (const absl::string_view reason : absl::StrSplit(not_here, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&warnings, "# On this machine it cannot run: ", reason, ".\n");
  }
  if (IsHttp(job->data().path())) {
    const bool bytes_only = job->data().augment().rand_augment() > 0;
    absl::StrAppend(&warnings, "# Not looked at: ", job->data().path(), ". Workers read its index as they begin",
                    bytes_only ? ", and with data.augment.rand_augment refuse pixels other than uint8" : "",
                    "; `slackline doctor` reads it before.\n");
  }
  std::printf("%s%s%s# OK: %s is a valid job.\n", ToYaml(*job).c_str(), PriceOf(job->consistency()).c_str(),
              warnings.c_str(), job_file.c_str());
  return kExitDone;
}

// Empty if word `index` is a flag or one of `app`'s subcommands, and so on for the words behind it; else what is wrong.
std::string SubcommandMistake(const CLI::App& app, int index, int argc, char** argv) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (index < argc && argv[index][0] == '-')) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    names.push_back(command->get_name());
    if (index < argc && command->get_name() == argv[index]) return SubcommandMistake(*command, index + 1, argc, argv);
  }
  const std::string before = index > 1 ? absl::StrCat(" after '", argv[index - 1], "'") : "";
  const std::string found = index < argc ? absl::StrCat("'", argv[index], "'") : "no command";
  return absl::StrCat("found ", found, before, "; allowed is ", absl::StrJoin(names, ", "));
}

// The program beside this one does it all, its help included.
int Simulate(const std::vector<std::string>& arguments) {
  const auto program = Sibling("slackline-simulator");
  const absl::Status status = program.ok() ? Become(*program, arguments) : program.status();
  std::fprintf(stderr, "slackline simulate: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

void AddScript(CLI::App& command, ScriptOptions& options) {
  command.add_option("ARGS", options.arguments, "After --: arguments of the script");
  command.add_option("--python", options.python, "Python interpreter, with the package slackline in it [python3]")
      ->type_name("PROGRAM");
}

CLI::App* AddLaunch(CLI::App& app, LaunchOptions& options) {
  CLI::App* command = app.add_subcommand("launch", "Run a job on this machine whose workers are a Python script");
  command->add_option("SCRIPT", options.script.script, "The script")->required();
  command->add_option("JOB", options.train.job_file, "The job file (YAML)")->required();
  AddScript(*command, options.script);
  command->add_option("--servers", options.servers, "In the place of cluster.servers")->check(CLI::Range(1, 10000));
  command->add_option("--workers", options.workers, "In the place of cluster.workers")->check(CLI::Range(1, 10000));
  command->add_option("--set", options.train.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  command->add_option("--run-folder", options.train.run_folder, "As with `slackline train`")->check(FolderMistake);
  command->add_flag("--quiet", options.train.quiet, "Show only the result");
  command->footer(kLaunchHelp);
  return command;
}

CLI::App* AddServers(CLI::App& app, ServersOptions& options) {
  CLI::App* command =
      app.add_subcommand("servers", "Add parameter servers to a run, or have some leave, while it trains");
  command->require_subcommand(1);
  command->footer(kServersHelp);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    verb->add_option("RUN", options.run.target, "Run folder, or the scheduler's HOST:PORT")->required();
    verb->add_option("--job", options.run.job_file, kJobHelp)->type_name("JOB.yaml");
    verb->add_option_function<double>(
            "--wait", [&options](double seconds) { options.wait = absl::Seconds(seconds); },
            "How long to wait until the shards have moved; 0: not at all [120]")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.0, 1e6));
    verb->footer(kServersHelp);
    return verb;
  };
  CLI::App* more = add("add", "The run is to have more servers; those that join get shards of the others");
  options.add = 1;
  more->add_option("--count", options.add, "How many more")->capture_default_str()->check(CLI::Range(1, 10000));
  CLI::App* fewer = add("drain", "Servers give all their shards to the others, and leave");
  fewer->add_option("NAME", options.drain, "Names of servers, as `slackline status` shows them")->required();
  return command;
}

CLI::App* AddCredentials(CLI::App& app, CredentialsOptions& options) {
  CLI::App* command = app.add_subcommand("credentials", "Make certificates and keys for a job, or a token");
  command->add_option("DIR", options.folder, "Folder for certificates and keys, new or only yours");
  command->add_option("--job", options.job, "Name of the job, as in its file")->type_name("NAME");
  command->add_option("--days", options.days, "How long the certificates are valid [365, or as those that are renewed]")
      ->check(CLI::Range(1, 36500));
  command->add_option("--token", options.token_file, "Make a token instead, in this file")->type_name("FILE");
  command->add_flag("--renew", options.renew,
                    "Replace keys and certificates, signed by the authority that is there: a running job goes on");
  command->add_flag("--force", options.force, "Replace all that is there, the authority too");
  command->footer(kCredentialsHelp);
  return command;
}

int Main(int argc, char** argv) {
  CLI::App app(kAbout, "slackline");
  app.set_version_flag("--version", VersionText("slackline"));
  app.require_subcommand(1);

  TrainOptions train;
  train.program = argv[0];
  CLI::App* train_command = app.add_subcommand("train", "Run a job on this machine, from one file");
  train_command->add_option("JOB", train.job_file, "The job file (YAML)")->required();
  train_command->add_option("--set", train.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  train_command
      ->add_option("--run-folder", train.run_folder,
                   "Folder for the results, new or empty; default: output.folder, or runs/NAME-DATE-TIME")
      ->check(FolderMistake);
  train_command->add_flag("--quiet", train.quiet, "Show only the result");
  train_command->footer(kTrainHelp);

  LaunchOptions launch;
  launch.train.program = argv[0];
  CLI::App* launch_command = AddLaunch(app, launch);

  CheckOptions check;
  CLI::App* check_command = app.add_subcommand("check", "Check a job file without running it");
  check_command->add_option("JOB", check.job_file, "The job file (YAML)")->required();
  check_command->add_option("--set", check.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  check_command
      ->add_option(
          "--for", check.purpose,
          "train or simulate: fail where this machine cannot do that: images, weights, network, GPUs, programs")
      ->check(CLI::IsMember({"train", "simulate"}));
  check_command->add_flag("--fingerprint", check.only_fingerprint,
                          "Print only the number that all processes of the job name");
  check_command->footer(kCheckHelp);

  StatusOptions status;
  CLI::App* status_command = app.add_subcommand("status", "Show how a run is doing, and its members");
  status_command
      ->add_option("RUN", status.target, "Run folder, the scheduler's HOST:PORT, or the address of the status page")
      ->required();
  status_command->add_option("--job", status.job_file, kJobHelp)->type_name("JOB.yaml");
  auto* watch = status_command->add_flag("--watch", status.watch, "Show it every second until the run has ended");
  status_command->add_flag("--json", status.json, "As JSON, as docs/status-fields.md has it")->excludes(watch);
  status_command->footer(kStatusHelp);

  ResumeOptions resume;
  resume.program = argv[0];
  CLI::App* resume_command = app.add_subcommand("resume", "Go on with a run from a checkpoint");
  resume_command->add_option("RUN", resume.run_folder, "Run folder")->required();
  resume_command->add_option("--checkpoint", resume.checkpoint,
                             "Name or number of a checkpoint of the run, its path, or `best` (checkpoint.keep_best); "
                             "default: the newest that is "
                             "whole");
  resume_command->add_option("--set", resume.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  ScriptOptions resume_script;
  resume_command
      ->add_option("--script", resume_script.script,
                   "Another script for a run of `slackline launch` [the run's own, with its arguments]")
      ->type_name("SCRIPT");
  AddScript(*resume_command, resume_script);
  resume_command->add_flag("--quiet", resume.quiet, "Show only the result");
  resume_command->footer(kResumeHelp);

  CLI::App* checkpoint_command = app.add_subcommand("checkpoint", "Have a checkpoint of a run made, and wait for it");
  checkpoint_command->add_option("RUN", status.target, "Run folder, or the scheduler's HOST:PORT")->required();
  checkpoint_command->add_option("--job", status.job_file, kJobHelp)->type_name("JOB.yaml");
  checkpoint_command->footer(kCheckpointHelp);

  std::string target;
  bool verify = false;
  CLI::App* checkpoints_command = app.add_subcommand("checkpoints", "List the checkpoints of a run");
  checkpoints_command->add_option("RUN", target, "Run folder, or a folder of checkpoints")->required();
  checkpoints_command->add_flag("--verify", verify, "Read all bytes, and compare their checksums");
  checkpoints_command->footer(kCheckpointsHelp);

  std::string weights;
  CLI::App* export_command = app.add_subcommand("export", "Write the weights of a checkpoint as safetensors");
  export_command->add_option("CHECKPOINT", target, "Folder of a checkpoint, or a run folder for its newest one")
      ->required();
  export_command->add_option("FILE", weights, "File to write")->required();
  export_command->add_option(
      "--checkpoint", resume.checkpoint,
      "With a run folder: name or number of a checkpoint of it, or `best` (checkpoint.keep_best)");
  std::string which_weights;
  export_command
      ->add_option("--weights", which_weights,
                   "With optimizer.ema, whether the weights' average is written, or they themselves; else the average")
      ->check(CLI::IsMember(std::vector<std::string>{kExportAveraged, kExportLast}));
  export_command->footer(kExportHelp);
  CredentialsOptions credentials;
  CLI::App* credentials_command = AddCredentials(app, credentials);

  ServersOptions servers;
  CLI::App* servers_command = AddServers(app, servers);

  // Its options, --help too, are those of the Python package.
  ExperimentOptions experiment;
  CLI::App* experiment_command =
      app.add_subcommand("experiment", "Run a grid of jobs from one file, and show what came out");
  experiment_command->set_help_flag();
  experiment_command->allow_extras();
  experiment_command->add_option("--python", experiment.python, "Python interpreter")->type_name("PROGRAM");
  ExperimentOptions plan;
  CLI::App* plan_command = app.add_subcommand("plan", "Say how long a job takes by batch size and number of nodes");
  plan_command->set_help_flag();
  plan_command->allow_extras();
  plan_command->add_option("--python", plan.python, "Python interpreter")->type_name("PROGRAM");
  ExperimentOptions trace;
  CLI::App* trace_command = app.add_subcommand("trace", "Write what workers did when as spans of OpenTelemetry");
  trace_command->set_help_flag();
  trace_command->allow_extras();
  trace_command->add_option("--python", trace.python, "Python interpreter")->type_name("PROGRAM");
  app.add_subcommand("simulate", "Play a job in virtual time, in one process");
  slurm::Command slurm(app, argv[0]);
  const doctor::Command doctor(app);
  const prepare::Command prepare(app);
  const EvaluateCommand evaluate(app);

  if (const std::string mistake = SubcommandMistake(app, 1, argc, argv); !mistake.empty()) {
    std::fprintf(stderr, "slackline: %s\n", mistake.c_str());
    return kExitWrongUse;
  }
  if (argc > 1 && std::string(argv[1]) == "simulate") return Simulate({argv + 2, argv + argc});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitWrongUse;
  }
  if (train_command->parsed()) return Train(train);
  if (launch_command->parsed()) return Launch(launch);
  if (check_command->parsed()) return Check(check);
  if (resume_command->parsed()) return Resume(resume, resume_script);
  if (checkpoint_command->parsed()) return MakeCheckpoint(status);
  if (checkpoints_command->parsed()) return ListCheckpoints(target, verify);
  if (export_command->parsed()) return ExportCheckpoint(target, resume.checkpoint, weights, which_weights);
  if (experiment_command->parsed()) {
    experiment.arguments = experiment_command->remaining();
    return Experiment(experiment);
  }
  if (plan_command->parsed()) {
    plan.arguments = plan_command->remaining();
    return Plan(plan);
  }
  if (trace_command->parsed()) {
    trace.arguments = trace_command->remaining();
    return TraceFiles(trace);
  }
  if (servers_command->parsed()) {
    if (!servers.drain.empty()) servers.add = 0;
    return ChangeServers(servers);
  }
  if (credentials_command->parsed()) return Credentials(credentials);
  if (slurm.parsed()) return slurm.Run();
  if (doctor.parsed()) return doctor.Run();
  if (prepare.parsed()) return prepare.Run();
  if (evaluate.parsed()) return evaluate.Run();
  return Status(status);
}

}  // namespace
}  // namespace slackline::cli

int main(int argc, char** argv) {
  slackline::rpc::SilenceGrpcLog();
  slackline::log::InitialiseCommand("slackline");
  return slackline::FinishStdout(slackline::cli::Main(argc, argv));
}

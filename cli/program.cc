// The `slackline` command.
#include "cli/program.h"

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
#include "cli/base/complain.h"
#include "cli/base/sibling.h"
#include "cli/commands/checkpoints.h"
#include "cli/commands/credentials.h"
#include "cli/commands/evaluate.h"
#include "cli/commands/experiment.h"
#include "cli/commands/launch.h"
#include "cli/commands/servers.h"
#include "cli/commands/status.h"
#include "cli/commands/train.h"
#include "cli/doctor/command.h"
#include "cli/help/command.h"
#include "cli/prepare/command.h"
#include "cli/run/cluster.h"
#include "cli/run/run_checks.h"
#include "cli/run/script.h"
#include "cli/slurm/command.h"
#include "common/folder_name.h"
#include "common/help.h"
#include "common/http/http_address.h"
#include "common/job/job_file.h"
#include "common/log_format.h"
#include "common/nearest_word.h"
#include "common/output.h"
#include "common/rpc/channel.h"
#include "common/security/check_credentials.h"
#include "common/slowdown.h"
#include "common/version_text.h"
#include "worker/spec/job_checks.h"

namespace slackline::cli {
namespace {

constexpr char kAbout[] = "Trains PyTorch models asynchronously, with parameter servers.";

const HelpText kMainHelp = {.example = "slackline train job.yaml",
                            .most_used = "train status resume",
                            .groups = {{"Before a run", "check doctor prepare credentials placement"},
                                       {"Start and change runs", "launch slurm servers checkpoint"},
                                       {"Results", "checkpoints export evaluate trace"},
                                       {"Compare and plan", "experiment simulate plan"},
                                       {"Explain", "help completion"}},
                            .text =
                                "Show the options of a command with `slackline COMMAND --help`, and an explanation "
                                "with `slackline help TOPIC`.\n\n"
                                "Exit codes: 0 done; 1 failed or stopped; 2 the command line or the job file is wrong, "
                                "and nothing was changed."};

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
    .groups = {{"Script", "--python"}, {"Output", "--run-folder --quiet"}},
    .text =
        "Each worker is a process that runs the script. The script calls slackline.connect(), which finds the job, "
        "the scheduler and the worker's name. The script's output goes to the logs in the run folder. All else is as "
        "with `slackline train`.\n\n"
        "If the job file has no model.kind, the kind is `external`: the script brings the model and the data. "
        "Slackline passes everything after -- to the script.",
    .examples = "slackline launch train.py job.yaml --python venv/bin/python -- --depth 18"};

const HelpText kCheckHelp = {
    .example = "slackline check job.yaml",
    .most_used = "--set --for --fingerprint",
    .text =
        "Prints the job with every default written out. For each mistake it names the line, the value, and the "
        "allowed values.",
    .examples =
        "slackline check job.yaml --set consistency.mode=bsp\n"
        "slackline check job.yaml --for train"};

const HelpText kStatusHelp = {.example = "slackline status runs/first --watch",
                              .most_used = "--watch --json --job",
                              .text = "Exit codes: slackline help status.",
                              .examples =
                                  "slackline status runs/fashion-mnist-mlp-20250131-120000\n"
                                  "slackline status runs/first --json | jq .workers\n"
                                  "slackline status 127.0.0.1:34567 --watch\n"
                                  "slackline status node1:7000 --job job.yaml\n"
                                  "slackline status http://127.0.0.1:8080/ --watch"};

const HelpText kCredentialsHelp = {
    .example = "slackline credentials credentials --job first --days 30",
    .most_used = "--job --days --renew",
    .groups = {{"Other credentials", "--token"}, {"Replace files", "--force"}},
    .text =
        "Makes certificates and keys for security.mode: tls, or a token for security.mode: token. Only you can read "
        "the files. Existing files stay as they are, unless you give --renew or --force. "
        "`slackline help security` explains what each mode protects.",
    .examples =
        "slackline credentials credentials --job first --renew\n"
        "slackline credentials --token job.token"};

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

const HelpText kCheckpointHelp = {
    .example = "slackline checkpoint runs/first",
    .text =
        "Training continues meanwhile. The command prints the folder of the checkpoint when it is complete. If no "
        "checkpoint can be made, the exit code is 1. SIGUSR1 to `slackline train` or to the scheduler has the same "
        "effect.",
    .examples = "slackline checkpoint 127.0.0.1:34567"};

const HelpText kCheckpointsHelp = {.example = "slackline checkpoints runs/first",
                                   .examples = "slackline checkpoints runs/first --verify"};

const HelpText kExportHelp = {
    .example = "slackline export runs/first model.safetensors",
    .text =
        "The file has the model's own parameter names. In PyTorch, load it with safetensors.torch.load_file() and "
        "load_state_dict().",
    .examples =
        "slackline export runs/first model.safetensors --checkpoint best\n"
        "slackline export runs/first/checkpoints/checkpoint-000003 model.safetensors"};

const HelpText kServersHelp = {
    .example = "slackline servers add runs/first",
    .text =
        "Shards move while training continues; workers that push to a moving shard wait for some tenths of a second. "
        "`slackline train` starts the added servers. Without it, start them by hand: slackline-ps JOB.yaml "
        "--scheduler RUN/scheduler.address --name NAME.\n\n"
        "Shards do not move with durability.mode: replicated. More: slackline help resize.",
    .examples =
        "slackline servers add runs/first --count 2 --wait 0\n"
        "slackline servers drain runs/first ps-1"};

constexpr char kRunHelp[] = "Run folder, or HOST:PORT of the scheduler";

constexpr char kJobHelp[] = "Job file, whose section `security` tells how to connect. Default: that of the run folder";

constexpr char kSetHelp[] = "Change a setting of the job file, for example optimizer.lr=0.1. May be repeated";
constexpr char kJobFileHelp[] = "Job file (YAML)";
constexpr char kQuietHelp[] = "Show only the result";

// Returns a YAML comment that says how much memory delay compensation takes; empty without it.
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
  const std::string nearest = index < argc ? NearestWord(argv[index], names) : "";
  const std::string meant = nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
  return absl::StrCat("found ", found, before, meant, meant.empty() ? "; allowed" : " Allowed", " is ",
                      absl::StrJoin(names, ", "));
}

// The program beside this one does it all, its help included.
int Simulate(const std::vector<std::string>& arguments) {
  const auto program = Sibling("slackline-simulator");
  const absl::Status status = program.ok() ? Become(*program, arguments) : program.status();
  std::fprintf(stderr, "slackline simulate: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

void AddScript(CLI::App& command, ScriptOptions& options) {
  command.add_option("ARGS", options.arguments, "Arguments of the script, after --");
  command.add_option("--python", options.python, "Python interpreter that has the package slackline. Default: python3")
      ->type_name("PROGRAM");
}

CLI::App* AddLaunch(CLI::App& app, LaunchOptions& options) {
  CLI::App* command = app.add_subcommand("launch", "Run a job whose workers run a Python script");
  command->add_option("SCRIPT", options.script.script, "Python script of the workers")->required();
  command->add_option("JOB", options.train.job_file, kJobFileHelp)->required();
  AddScript(*command, options.script);
  command->add_option("--servers", options.servers, "Number of servers, instead of cluster.servers")
      ->check(CLI::Range(1, 4096));
  command->add_option("--workers", options.workers, "Number of workers, instead of cluster.workers")
      ->check(CLI::Range(1, 65536));
  command->add_option("--set", options.train.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  command
      ->add_option("--run-folder", options.train.run_folder,
                   "Folder for the results, new or empty. Default: as with `slackline train`")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  command->add_flag("--quiet", options.train.quiet, kQuietHelp);
  SetHelp(*command, kLaunchHelp);
  return command;
}

CLI::App* AddServers(CLI::App& app, ServersOptions& options) {
  CLI::App* command = app.add_subcommand("servers", "Add servers to a run, or remove some, while it trains");
  command->require_subcommand(1);
  SetHelp(*command, kServersHelp);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    verb->add_option("RUN", options.run.target, kRunHelp)->required();
    verb->add_option("--job", options.run.job_file, kJobHelp)->type_name("JOB.yaml");
    verb->add_option_function<double>(
            "--wait", [&options](double seconds) { options.wait = absl::Seconds(seconds); },
            "Time to wait until the shards have moved; 0: do not wait. Default: 120")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.0, 1e6));
    SetHelp(*verb, kServersHelp);
    return verb;
  };
  CLI::App* more = add("add", "Add servers, which take shards from the others");
  options.add = 1;
  more->add_option("--count", options.add, "Number of servers to add")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  CLI::App* fewer = add("drain", "Remove servers, whose shards move to the others");
  fewer->add_option("NAME", options.drain, "Names of the servers, as `slackline status` shows them")->required();
  return command;
}

CLI::App* AddCredentials(CLI::App& app, CredentialsOptions& options) {
  CLI::App* command = app.add_subcommand("credentials", "Make certificates and keys, or a token, for a job");
  command->add_option("DIR", options.folder,
                      "Folder for certificates and keys: a new one, or one that only you may read");
  command->add_option("--job", options.job, "Name of the job, as in the job file")->type_name("NAME");
  command
      ->add_option("--days", options.days,
                   "Days until the certificates expire. Default: 365, or as before with --renew")
      ->check(CLI::Range(1, 36500));
  command->add_option("--token", options.token_file, "Make a token in this file, instead of certificates")
      ->type_name("FILE");
  command->add_flag("--renew", options.renew,
                    "Replace keys and certificates, and keep the authority that signs them. A running job continues");
  command->add_flag("--force", options.force, "Replace everything, also the authority");
  SetHelp(*command, kCredentialsHelp);
  return command;
}

int Main(int argc, char** argv) {
  CLI::App app(kAbout, "slackline");
  app.set_version_flag("--version", VersionText("slackline"));
  app.require_subcommand(1);

  TrainOptions train;
  train.program = argv[0];
  CLI::App* train_command = app.add_subcommand("train", "Train the model of a job file on this machine");
  train_command->add_option("JOB", train.job_file, kJobFileHelp)->required();
  train_command->add_option("--set", train.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  train_command
      ->add_option("--run-folder", train.run_folder,
                   "Folder for the results, new or empty. Default: output.folder, or runs/NAME-DATE-TIME")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  train_command->add_flag("--quiet", train.quiet, kQuietHelp);
  SetHelp(*train_command, kTrainHelp);

  LaunchOptions launch;
  launch.train.program = argv[0];
  CLI::App* launch_command = AddLaunch(app, launch);

  CheckOptions check;
  CLI::App* check_command = app.add_subcommand("check", "Check a job file without running it");
  check_command->add_option("JOB", check.job_file, kJobFileHelp)->required();
  check_command->add_option("--set", check.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  check_command
      ->add_option("--for", check.purpose,
                   "Fail if this machine cannot train or simulate the job: images, weights, network, GPUs, programs")
      ->check(CLI::IsMember({"train", "simulate"}));
  check_command->add_flag("--fingerprint", check.only_fingerprint,
                          "Print only the number by which processes recognise their job");
  SetHelp(*check_command, kCheckHelp);

  StatusOptions status;
  CLI::App* status_command = app.add_subcommand("status", "Show the progress, workers and servers of a run");
  status_command
      ->add_option("RUN", status.target, "Run folder, HOST:PORT of the scheduler, or address of the status page")
      ->required();
  status_command->add_option("--job", status.job_file, kJobHelp)->type_name("JOB.yaml");
  auto* watch = status_command->add_flag("--watch", status.watch, "Show the status every second until the run ends");
  status_command->add_flag("--json", status.json, "Print JSON, with the fields of docs/status-fields.md")
      ->excludes(watch);
  SetHelp(*status_command, kStatusHelp);

  ResumeOptions resume;
  resume.program = argv[0];
  CLI::App* resume_command = app.add_subcommand("resume", "Continue a run from a checkpoint");
  resume_command->add_option("RUN", resume.run_folder, "Run folder")->required();
  resume_command
      ->add_option("--checkpoint", resume.checkpoint,
                   "Name, number or path of a checkpoint of the run, or `best` (needs "
                   "checkpoint.keep_best). Default: the newest complete checkpoint")
      ->type_name("CHECKPOINT");
  resume_command->add_option("--set", resume.overrides, kSetHelp)->type_name("KEY=VALUE")->expected(1)->take_all();
  ScriptOptions resume_script;
  resume_command
      ->add_option("--script", resume_script.script,
                   "Another script for a run of `slackline launch`. Default: the script of the run, with its arguments")
      ->type_name("SCRIPT");
  AddScript(*resume_command, resume_script);
  resume_command->add_flag("--quiet", resume.quiet, kQuietHelp);
  SetHelp(*resume_command, kResumeHelp);

  CLI::App* checkpoint_command = app.add_subcommand("checkpoint", "Make a checkpoint of a run now, and wait for it");
  checkpoint_command->add_option("RUN", status.target, kRunHelp)->required();
  checkpoint_command->add_option("--job", status.job_file, kJobHelp)->type_name("JOB.yaml");
  SetHelp(*checkpoint_command, kCheckpointHelp);

  std::string target;
  bool verify = false;
  CLI::App* checkpoints_command = app.add_subcommand("checkpoints", "List the checkpoints of a run");
  checkpoints_command->add_option("RUN", target, "Run folder, or folder of checkpoints")->required();
  checkpoints_command->add_flag("--verify", verify, "Read every byte and compare the checksums");
  SetHelp(*checkpoints_command, kCheckpointsHelp);

  std::string weights;
  CLI::App* export_command = app.add_subcommand("export", "Write the weights of a checkpoint as safetensors");
  export_command->add_option("CHECKPOINT", target, "Folder of a checkpoint, or a run folder for its newest checkpoint")
      ->required();
  export_command->add_option("FILE", weights, "File to write")->required();
  export_command
      ->add_option("--checkpoint", resume.checkpoint,
                   "Name or number of a checkpoint of the run folder, or `best` (needs checkpoint.keep_best)")
      ->type_name("CHECKPOINT");
  std::string which_weights;
  export_command
      ->add_option("--weights", which_weights,
                   "With optimizer.ema: the averaged weights or the last ones. Default: averaged")
      ->check(CLI::IsMember(std::vector<std::string>{kExportAveraged, kExportLast}));
  SetHelp(*export_command, kExportHelp);
  CredentialsOptions credentials;
  CLI::App* credentials_command = AddCredentials(app, credentials);

  ServersOptions servers;
  CLI::App* servers_command = AddServers(app, servers);

  // Its options, --help too, are those of the Python package.
  ExperimentOptions experiment;
  CLI::App* experiment_command = app.add_subcommand("experiment", "Run a grid of jobs with repeats, and compare them");
  experiment_command->set_help_flag();
  experiment_command->allow_extras();
  experiment_command
      ->add_option("--python", experiment.python, "Python interpreter. Default: that of the build, or python3")
      ->type_name("PROGRAM");
  ExperimentOptions plan;
  CLI::App* plan_command = app.add_subcommand("plan", "Estimate how long a job takes on N nodes");
  plan_command->set_help_flag();
  plan_command->allow_extras();
  plan_command->add_option("--python", plan.python, "Python interpreter. Default: that of the build, or python3")
      ->type_name("PROGRAM");
  ExperimentOptions trace;
  CLI::App* trace_command = app.add_subcommand("trace", "Convert traces of workers to OpenTelemetry spans");
  trace_command->set_help_flag();
  trace_command->allow_extras();
  trace_command->add_option("--python", trace.python, "Python interpreter. Default: that of the build, or python3")
      ->type_name("PROGRAM");
  app.add_subcommand("simulate", "Run a job in virtual time, in one process");
  slurm::Command slurm(app, argv[0]);
  const doctor::Command doctor(app);
  const prepare::Command prepare(app);
  const EvaluateCommand evaluate(app);
  const help::Command help(app);
  SetHelp(app, kMainHelp);

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
  if (help.parsed()) return help.Run();
  return Status(status);
}

}  // namespace

int RunProgram(int argc, char** argv) {
  rpc::SilenceGrpcLog();
  log::InitialiseCommand("slackline");
  return FinishStdout(Main(argc, argv));
}

}  // namespace slackline::cli

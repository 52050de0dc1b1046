#include "cli/slurm/command.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/shared_options.h"
#include "cli/slurm/launch.h"
#include "cli/slurm/node.h"
#include "cli/slurm/placement.h"
#include "cli/slurm/submit.h"
#include "cli/slurm/wait.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"

namespace slackline::cli::slurm {
namespace {

constexpr char kHelp[] =
    "In an allocation the scheduler runs on the node of the batch script, and each node that computes has a worker. "
    "The "
    "servers are spread over nodes and switches. If a node crashes, the run loses the processes of that node and "
    "continues. Before the wall limit, the run saves itself and goes back into the queue. SLURM starts it again later, "
    "also on another number of nodes. More: slackline help slurm.";

constexpr char kSubmitExample[] = "slackline slurm submit job.yaml -- --nodes=4 --time=48:00:00";

const HelpText kSlurmHelp = {.example = kSubmitExample, .text = kHelp};

const HelpText kSubmitHelp = {.example = kSubmitExample,
                              .most_used = "--set --run-folder --wait",
                              .groups = {{"Wall limit", "--resume --stop-before --no-requeue"},
                                         {"Network", "--interface"},
                                         {"Containers", "--srun-option"},
                                         {"Python scripts", "--script --python --script-argument"}},
                              .text = kHelp,
                              .examples =
                                  "slackline slurm submit job.yaml --interface ib0 -- --nodes=4 --time=1:00:00\n"
                                  "slackline slurm submit job.yaml --script train.py -- --nodes=4\n"
                                  "slackline slurm submit job.yaml -- --nodes=2 : --nodes=8 --gpus-per-node=4\n"
                                  "slackline slurm submit job.yaml --set seed=%a -- --array=1-5"};

const HelpText kRunHelp = {.example = "slackline slurm run job.yaml",
                           .most_used = "--set --run-folder --resume",
                           .groups = {{"Wall limit", "--stop-before --no-requeue"},
                                      {"Network", "--interface"},
                                      {"Containers", "--srun-option"},
                                      {"Python scripts", "--script --python --script-argument"}},
                           .text = kHelp,
                           .examples = "sbatch --nodes=4 --time=48:00:00 slurm/slackline.sbatch job.yaml"};

const HelpText kPlacementHelp = {.example = "slackline placement job.yaml --count 4",
                                 .most_used = "--nodes --count --set",
                                 .examples =
                                     "slackline placement job.yaml --nodes 'n[1-8]'\n"
                                     "slackline placement job.yaml --count 4 --set durability.mode=replicated"};

const HelpText kWaitHelp = {
    .example = "slackline slurm wait runs/first",
    .text =
        "Shows what the job writes and its state in SLURM, until it ends. The exit code is 0 if the run is done. "
        "Ctrl-C "
        "saves the run and ends it; a second one ends it at once. If the terminal is closed, the job goes on."};

constexpr char kInterfaceHelp[] =
    "Network interface of the nodes, or their network as ADDRESS/BITS. Default: network.interface, or the address of "
    "the node's name";
constexpr char kStopHelp[] = "Save the run so many seconds before the wall limit";

void AddWorkers(CLI::App& command, ScriptOptions& options) {
  CLI::Option* const script =
      command.add_option("--script", options.script, "Python script of the workers (slackline help python)")
          ->type_name("SCRIPT");
  command.add_option("--python", options.python, "Python interpreter that has the package slackline. Default: python3")
      ->type_name("PROGRAM")
      ->needs(script);
  command.add_option("--script-argument", options.arguments, "Argument of the script. May be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->needs(script);
}

void AddSrun(CLI::App& command, std::vector<std::string>& options) {
  command
      .add_option("--srun-option", options,
                  "Option for the srun that starts a process on each node, for example "
                  "--srun-option=--container-image=IMAGE. May be repeated")
      ->type_name("OPTION")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->check([](const std::string& option) {
        if (option.size() > 2 && option.compare(0, 2, "--") == 0) return std::string();
        return "found '" + option + "'; allowed is a long option of srun with its value: --srun-option=--NAME=VALUE";
      });
}

// Adds what `submit` and `run` have in common before the wall limit.
void AddRunOptions(CLI::App& command, auto& options, const char* folder_help) {
  command.add_option("JOB", options.job_file, "Job file (YAML)");
  AddOverrides(command, options.overrides);
  command.add_option("--run-folder", options.run_folder, folder_help)->type_name("FOLDER")->check(FolderMistake);
  command.add_flag("--resume", options.resume, "Continue the run in --run-folder from its newest checkpoint");
  command.add_option("--interface", options.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
}

std::function<int()> AddSubmit(CLI::App& slurm) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App& command = *slurm.add_subcommand("submit", "Make a run folder and a batch script, and submit the script");
  AddRunOptions(command, *options,
                "Run folder, which all nodes must see. Default: output.folder, or a new folder below runs/");
  command.add_option("--stop-before", options->stop_before_s, kStopHelp)
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 86400.0));
  command.add_flag("!--no-requeue", options->requeue, "End at the wall limit, and do not go back into the queue");
  AddWorkers(command, options->script);
  AddSrun(command, options->srun);
  command.add_flag("--wait", options->wait, "Show the output of the job, and wait for its end (slackline slurm wait)");
  command.add_flag("--dry-run", options->dry_run, "Print the batch script, and submit nothing");
  command.add_option("SBATCH", options->sbatch, "Options for sbatch, after --");
  SetHelp(command, kSubmitHelp);
  return [options] {
    // A --resume without a job file leaves the first option for sbatch in its place.
    if (options->resume && options->job_file.starts_with("-")) {
      options->sbatch.insert(options->sbatch.begin(), std::exchange(options->job_file, ""));
    }
    return Submit(*options);
  };
}

std::function<int()> AddRun(CLI::App& slurm, const char* program) {
  const auto options = std::make_shared<LaunchOptions>();
  options->program = program;
  CLI::App& command = *slurm.add_subcommand("run", "Run a job in this allocation; for batch scripts");
  AddRunOptions(command, *options,
                "Run folder, which all nodes must see. Default: output.folder, or runs/NAME-slurm-JOBID");
  command
      .add_option_function<double>(
          "--stop-before", [options](double seconds) { options->stop_before = absl::Seconds(seconds); },
          std::string(kStopHelp) + ". Default: 120")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 86400.0));
  command.add_flag("!--no-requeue", options->requeue, "End at the wall limit, and do not go back into the queue");
  AddWorkers(command, options->script);
  AddSrun(command, options->srun);
  SetHelp(command, kRunHelp);
  return [options] { return Launch(*options); };
}

std::function<int()> AddWait(CLI::App& slurm) {
  const auto folder = std::make_shared<std::string>();
  CLI::App& command = *slurm.add_subcommand("wait", "Follow the job of a submitted run until it ends");
  command.add_option("RUN", *folder, "Folder of the run")->required()->check(FolderMistake);
  SetHelp(command, kWaitHelp);
  return [folder] { return Wait(*folder); };
}

std::function<int()> AddNode(CLI::App& slurm) {
  const auto options = std::make_shared<NodeOptions>();
  CLI::App& command =
      *slurm.add_subcommand("node", "Supervise the processes of one node; started by `slackline slurm run`");
  command.add_option("--meeting", options->meeting, "Folder of this attempt, in the run folder")
      ->type_name("FOLDER")
      ->required();
  command.add_option("--interface", options->interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  command.add_flag("!--no-requeue", options->requeue, "Do not go back into the queue if the launcher is lost");
  command
      .add_option_function<double>(
          "--patience", [options](double seconds) { options->patience = absl::Seconds(seconds); },
          "Time to wait for the plan of the nodes")
      ->type_name("SECONDS");
  SetHelp(command, {});
  return [options] { return ServeNode(*options); };
}

}  // namespace

AddedCommand AddSlurm(CLI::App& app, const char* program) {
  CLI::App* command = app.add_subcommand("slurm", "Run a job under SLURM");
  command->require_subcommand(1);
  const std::map<std::string, std::function<int()>> act = {{"submit", AddSubmit(*command)},
                                                           {"wait", AddWait(*command)},
                                                           {"run", AddRun(*command, program)},
                                                           {"node", AddNode(*command)}};
  SetHelp(*command, kSlurmHelp);
  return {command, [=] { return act.at(command->get_subcommands().front()->get_name())(); }};
}

AddedCommand AddPlacement(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<PlacementOptions>();
  CLI::App* command = app.add_subcommand("placement", "Show which process of a job would run on which node");
  AddJobFile(*command, options->job_file);
  AddOverrides(*command, options->overrides);
  command->add_option("--nodes", options->nodes, "Nodes of this SLURM cluster. Default: the nodes of the allocation")
      ->type_name("NAMES");
  command->add_option("--count", options->count, "Number of nodes, if their names are not known")
      ->check(CLI::Range(1, 100000));
  SetHelp(*command, kPlacementHelp);
  return {command, [options] { return ShowPlacement(*options); }};
}

}  // namespace slackline::cli::slurm

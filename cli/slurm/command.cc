#include "cli/slurm/command.h"

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "common/folder_name.h"
#include "common/help.h"

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
                              .most_used = "--set --run-folder --dry-run",
                              .groups = {{"Wall limit", "--resume --stop-before --no-requeue"},
                                         {"Network", "--interface"},
                                         {"Containers", "--srun-option"},
                                         {"Python scripts", "--script --python --script-argument"}},
                              .text = kHelp,
                              .examples =
                                  "slackline slurm submit job.yaml --interface ib0 -- --nodes=4 --time=1:00:00\n"
                                  "slackline slurm submit job.yaml --script train.py -- --nodes=4\n"
                                  "slackline slurm submit job.yaml -- --nodes=2 : --nodes=8 --gpus-per-node=4"};

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

constexpr char kInterfaceHelp[] =
    "Network interface of the nodes, or their network as ADDRESS/BITS. Default: network.interface, or the address of "
    "the node's name";
constexpr char kStopHelp[] = "Save the run so many seconds before the wall limit";
constexpr char kSettingHelp[] = "Change a setting of the job file, for example optimizer.lr=0.1. May be repeated";
constexpr char kFolderHelp[] =
    "Run folder, which all nodes must see. Default: output.folder, or a new folder below runs/";

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

}  // namespace

Command::Command(CLI::App& app, const std::string& program) {
  slurm_ = app.add_subcommand("slurm", "Run a job under SLURM");
  slurm_->require_subcommand(1);

  submit_command_ = slurm_->add_subcommand("submit", "Make a run folder and a batch script, and submit the script");
  submit_command_->add_option("JOB", submit_.job_file, "Job file (YAML)");
  submit_command_->add_option("--set", submit_.overrides, kSettingHelp)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  submit_command_->add_option("--run-folder", submit_.run_folder, kFolderHelp)
      ->type_name("FOLDER")
      ->check(FolderMistake);
  submit_command_->add_flag("--resume", submit_.resume, "Continue the run in --run-folder from its newest checkpoint");
  submit_command_->add_option("--interface", submit_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  submit_command_->add_option("--stop-before", submit_.stop_before_s, kStopHelp)
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 86400.0));
  submit_command_->add_flag("!--no-requeue", submit_.requeue,
                            "End at the wall limit, and do not go back into the queue");
  AddWorkers(*submit_command_, submit_.script);
  AddSrun(*submit_command_, submit_.srun);
  submit_command_->add_flag("--dry-run", submit_.dry_run, "Print the batch script, and submit nothing");
  submit_command_->add_option("SBATCH", submit_.sbatch, "Options for sbatch, after --");
  SetHelp(*submit_command_, kSubmitHelp);

  run_.program = program;
  run_command_ = slurm_->add_subcommand("run", "Run a job in this allocation; for batch scripts");
  run_command_->add_option("JOB", run_.job_file, "Job file (YAML)");
  run_command_->add_option("--set", run_.overrides, kSettingHelp)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  run_command_
      ->add_option("--run-folder", run_.run_folder,
                   "Run folder, which all nodes must see. Default: output.folder, or runs/NAME-slurm-JOBID")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  run_command_->add_flag("--resume", run_.resume, "Continue the run in --run-folder from its newest checkpoint");
  run_command_->add_option("--interface", run_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  run_command_
      ->add_option_function<double>(
          "--stop-before", [this](double seconds) { run_.stop_before = absl::Seconds(seconds); },
          std::string(kStopHelp) + ". Default: 120")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 86400.0));
  run_command_->add_flag("!--no-requeue", run_.requeue, "End at the wall limit, and do not go back into the queue");
  AddWorkers(*run_command_, run_.script);
  AddSrun(*run_command_, run_.srun);
  SetHelp(*run_command_, kRunHelp);

  node_command_ =
      slurm_->add_subcommand("node", "Supervise the processes of one node; started by `slackline slurm run`");
  node_command_->add_option("--meeting", node_.meeting, "Folder of this attempt, in the run folder")
      ->type_name("FOLDER")
      ->required();
  node_command_->add_option("--interface", node_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  node_command_->add_flag("!--no-requeue", node_.requeue, "Do not go back into the queue if the launcher is lost");
  node_command_
      ->add_option_function<double>(
          "--patience", [this](double seconds) { node_.patience = absl::Seconds(seconds); },
          "Time to wait for the plan of the nodes")
      ->type_name("SECONDS");
  SetHelp(*node_command_, {});
  SetHelp(*slurm_, kSlurmHelp);

  placement_command_ = app.add_subcommand("placement", "Show which process of a job would run on which node");
  placement_command_->add_option("JOB", placement_.job_file, "Job file (YAML)")->required();
  placement_command_->add_option("--set", placement_.overrides, kSettingHelp)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  placement_command_
      ->add_option("--nodes", placement_.nodes, "Nodes of this SLURM cluster. Default: the nodes of the allocation")
      ->type_name("NAMES");
  placement_command_->add_option("--count", placement_.count, "Number of nodes, if their names are not known")
      ->check(CLI::Range(1, 100000));
  SetHelp(*placement_command_, kPlacementHelp);
}

bool Command::parsed() const { return slurm_->parsed() || placement_command_->parsed(); }

int Command::Run() {
  if (placement_command_->parsed()) return ShowPlacement(placement_);
  if (submit_command_->parsed()) {
    // With --resume the first of the options for sbatch takes the place of the job file.
    if (submit_.resume && submit_.job_file.starts_with("-")) {
      submit_.sbatch.insert(submit_.sbatch.begin(), std::exchange(submit_.job_file, ""));
    }
    return Submit(submit_);
  }
  if (node_command_->parsed()) return ServeNode(node_);
  return Launch(run_);
}

}  // namespace slackline::cli::slurm

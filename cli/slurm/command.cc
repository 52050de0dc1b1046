#include "cli/slurm/command.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/complain.h"
#include "common/folder_name.h"

namespace slackline::cli::slurm {
namespace {

constexpr char kHelp[] = R"(
A run in an allocation has the scheduler on the node of the batch script, a worker on each node that computes, and the servers
spread over nodes and switches. A node that dies costs its processes, not the run. Before the time of the job is over the run saves
itself, goes back into the queue, and goes on when SLURM starts it again, on another number of nodes, too.

Examples
  slackline slurm submit job.yaml -- --nodes=4 --cpus-per-task=16 --time=48:00:00 --account=abc
  slackline slurm submit job.yaml --interface ib0 -- --nodes=2 --time=1:00:00 : --nodes=8 --gpus-per-node=4
  slackline slurm submit job.yaml --script train.py --python env/bin/python -- --nodes=4
  sbatch --nodes=4 --time=48:00:00 slurm/slackline.sbatch job.yaml)";

constexpr char kPlacementHelp[] = R"(
Examples
  slackline placement job.yaml --nodes 'n[1-8]'
  slackline placement job.yaml --count 4 --set durability.mode=replicated)";

constexpr char kInterfaceHelp[] =
    "Network interface of the nodes, or their network as ADDRESS/BITS; default: network.interface, or the address of "
    "the node's name";
constexpr char kStopHelp[] = "So long before the end of the job's time the run is saved";
constexpr char kSettingHelp[] = "Override a setting of the job file, e.g. optimizer.lr=0.1";
constexpr char kFolderHelp[] = "Run folder, which all nodes see; default: output.folder, or a new one under runs/";

void AddWorkers(CLI::App& command, ScriptOptions& options) {
  CLI::Option* const script =
      command.add_option("--script", options.script, "A script in Python as the workers (docs/python.md)")
          ->type_name("SCRIPT");
  command.add_option("--python", options.python, "Its interpreter, with the package slackline in it [python3]")
      ->type_name("PROGRAM")
      ->needs(script);
  command.add_option("--script-argument", options.arguments, "An argument of the script; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->needs(script);
}

}  // namespace

Command::Command(CLI::App& app, const std::string& program) {
  slurm_ = app.add_subcommand("slurm", "Run a job in an allocation of SLURM");
  slurm_->require_subcommand(1);
  slurm_->footer(kHelp);

  submit_command_ = slurm_->add_subcommand("submit", "Make a run folder and a batch script, and submit it");
  submit_command_->add_option("JOB", submit_.job_file, "The job file (YAML)");
  submit_command_->add_option("--set", submit_.overrides, kSettingHelp)
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  submit_command_->add_option("--run-folder", submit_.run_folder, kFolderHelp)->check(FolderMistake);
  submit_command_->add_flag("--resume", submit_.resume,
                            "Go on with the run in --run-folder, from its newest checkpoint");
  submit_command_->add_option("--interface", submit_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  submit_command_->add_option("--stop-before", submit_.stop_before_s, kStopHelp)
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 86400.0));
  submit_command_->add_flag("!--no-requeue", submit_.requeue, "Do not go back into the queue when the time is over");
  AddWorkers(*submit_command_, submit_.script);
  submit_command_->add_flag("--dry-run", submit_.dry_run, "Show the batch script, and do nothing");
  submit_command_->add_option("SBATCH", submit_.sbatch, "After --: options for sbatch, as they are");
  submit_command_->footer(kHelp);

  run_.program = program;
  run_command_ =
      slurm_->add_subcommand("run", "Run a job in the allocation that this is started in: for batch scripts");
  run_command_->add_option("JOB", run_.job_file, "The job file (YAML)");
  run_command_->add_option("--set", run_.overrides, kSettingHelp)->type_name("KEY=VALUE")->allow_extra_args(false);
  run_command_
      ->add_option("--run-folder", run_.run_folder,
                   "Run folder, which all nodes see; default: output.folder, or runs/NAME-slurm-JOBID")
      ->check(FolderMistake);
  run_command_->add_flag("--resume", run_.resume, "Go on with the run in --run-folder, from its newest checkpoint");
  run_command_->add_option("--interface", run_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  run_command_
      ->add_option_function<double>(
          "--stop-before", [this](double seconds) { run_.stop_before = absl::Seconds(seconds); },
          std::string(kStopHelp) + " [120]")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 86400.0));
  run_command_->add_flag("!--no-requeue", run_.requeue, "Do not go back into the queue when the time is over");
  AddWorkers(*run_command_, run_.script);
  run_command_->footer(kHelp);

  node_command_ =
      slurm_->add_subcommand("node", "Look after the processes of one node: started by `slackline slurm run`");
  node_command_->add_option("--meeting", node_.meeting, "Folder of the attempt, in the run folder")->required();
  node_command_->add_option("--interface", node_.interface, kInterfaceHelp)->type_name("NAME|NETWORK");
  node_command_->add_flag("!--no-requeue", node_.requeue, "Do not go back into the queue when the launcher is lost");
  node_command_
      ->add_option_function<double>(
          "--patience", [this](double seconds) { node_.patience = absl::Seconds(seconds); },
          "How long to wait for the plan")
      ->type_name("SECONDS");

  placement_command_ = app.add_subcommand("placement", "Show which processes of a job would run on which node");
  placement_command_->add_option("JOB", placement_.job_file, "The job file (YAML)")->required();
  placement_command_->add_option("--set", placement_.overrides, kSettingHelp)
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  placement_command_
      ->add_option("--nodes", placement_.nodes, "Nodes of this cluster of SLURM; default: those of the allocation")
      ->type_name("NAMES");
  placement_command_->add_option("--count", placement_.count, "So many nodes of which nothing is known")
      ->check(CLI::Range(1, 100000));
  placement_command_->footer(kPlacementHelp);
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

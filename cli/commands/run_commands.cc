// `slackline train`, `launch` and `resume` on the command line.
#include <memory>

#include "cli/commands/launch.h"
#include "cli/commands/shared_options.h"
#include "cli/commands/train.h"
#include "common/folder_name.h"
#include "common/help.h"

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

void AddRunFolder(CLI::App& command, std::string& folder, const char* fallback) {
  command.add_option("--run-folder", folder, std::string("Folder for the results, new or empty. Default: ") + fallback)
      ->type_name("FOLDER")
      ->check(FolderMistake);
}

}  // namespace

AddedCommand AddTrain(CLI::App& app, const char* program) {
  const auto options = std::make_shared<TrainOptions>();
  options->program = program;
  CLI::App* command = app.add_subcommand("train", "Train the model of a job file on this machine");
  AddJobFile(*command, options->job_file);
  AddOverrides(*command, options->overrides);
  AddRunFolder(*command, options->run_folder, "output.folder, or runs/NAME-DATE-TIME");
  AddQuiet(*command, options->quiet);
  SetHelp(*command, kTrainHelp);
  return Added(command, [options] { return Train(*options); });
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
  return Added(command, [options] { return Launch(*options); });
}

AddedCommand AddResume(CLI::App& app, const char* program) {
  const auto options = std::make_shared<ResumeOptions>();
  const auto script = std::make_shared<ScriptOptions>();
  options->program = program;
  CLI::App* command = app.add_subcommand("resume", "Continue a run from a checkpoint");
  command->add_option("RUN", options->run_folder, "Run folder")->required();
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
  return Added(command, [options, script] { return Resume(*options, *script); });
}

}  // namespace slackline::cli

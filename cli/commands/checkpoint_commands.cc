// `slackline runs`, `checkpoints` and `export` on the command line.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/checkpoints.h"
#include "cli/commands/runs.h"
#include "cli/commands/shared_options.h"
#include "common/help.h"

namespace slackline::cli {
namespace {

const HelpText kRunsHelp = {
    .example = "slackline runs",
    .text =
        "Shows the newest run first. A run begins when it is started or resumed. `-` stands for a figure that no file "
        "tells. `slackline status` shows more of a run. States and columns: slackline help run-folder.",
    .examples =
        "slackline runs /scratch/runs\n"
        "slackline runs --json | jq '.[] | select(.state == \"failed\") | .folder'"};

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

struct ExportOptions {
  std::string target;
  std::string checkpoint;
  std::string file;
  std::string which;
};

}  // namespace

AddedCommand AddRuns(CLI::App& app, const char* /*program*/) {
  const auto folder = std::make_shared<std::string>("runs");
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("runs", "List the runs of a folder: state, epochs, accuracy, age, size");
  command->add_option("FOLDER", *folder, "Folder that holds run folders. Default: runs");
  command->add_flag("--json", *json, "Print a JSON array, with bytes, seconds and shares");
  SetHelp(*command, kRunsHelp);
  return Added(command, [folder, json] { return ListRuns(*folder, *json); });
}

AddedCommand AddCheckpoints(CLI::App& app, const char* /*program*/) {
  const auto target = std::make_shared<std::string>();
  const auto verify = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("checkpoints", "List the checkpoints of a run");
  command->add_option("RUN", *target, "Run folder, or folder of checkpoints")->required();
  command->add_flag("--verify", *verify, "Read every byte and compare the checksums");
  SetHelp(*command, kCheckpointsHelp);
  return Added(command, [target, verify] { return ListCheckpoints(*target, *verify); });
}

AddedCommand AddExport(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write the weights of a checkpoint as safetensors");
  command
      ->add_option("CHECKPOINT", options->target, "Folder of a checkpoint, or a run folder for its newest checkpoint")
      ->required();
  command->add_option("FILE", options->file, "File to write")->required();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Name or number of a checkpoint of the run folder, or `best` (needs checkpoint.keep_best)")
      ->type_name("CHECKPOINT");
  command
      ->add_option("--weights", options->which,
                   "With optimizer.ema: the averaged weights or the last ones. Default: averaged")
      ->check(CLI::IsMember(std::vector<std::string>{kExportAveraged, kExportLast}));
  SetHelp(*command, kExportHelp);
  return Added(command, [options] {
    return ExportCheckpoint(options->target, options->checkpoint, options->file, options->which);
  });
}

}  // namespace slackline::cli

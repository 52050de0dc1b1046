#include "cli/doctor/command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/base/complain.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/gpu_kit.h"
#include "common/job/command_options.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"

namespace slackline::cli::doctor {
namespace {

const HelpText kDoctorHelp = {
    .example = "slackline doctor job.yaml",
    .most_used = "--set --run-folder --json",
    .groups = {{"Measurements", "--gpu --parameters --disk-megabytes"}},
    .text =
        "Checks this machine before a run: programs, data, credentials, limits, memory, processors, clock, disks, "
        "ports and GPUs. In a SLURM allocation it checks each node, the network between the nodes, and SLURM's own "
        "settings. It writes a small file where the run will write, and removes the file again.\n\n"
        "With --gpu it runs a GPU kit instead: tests, gradients, and speed beside plain PyTorch on this machine's GPU, "
        "in 8 minutes. Figures are in results.jsonl of --run-folder (default: gpu-results) as soon as they are "
        "measured. The environment variable PYTHON names a Python with PyTorch. More: slackline help gpu.\n\n"
        "Exit codes: 0 no problems, with or without warnings; 1 problems; 2 wrong use.",
    .examples =
        "slackline doctor job.yaml --run-folder /scratch/runs/first\n"
        "slackline doctor job.yaml --parameters 25000000 --json\n"
        "PYTHON=my-venv/bin/python slackline doctor --gpu gpu-kit\n"
        "salloc --nodes=4 slackline doctor job.yaml"};

}  // namespace

AddedCommand AddDoctor(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<DoctorOptions>();
  const auto gpu_kit = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("doctor", "Check a machine or an allocation before a run");
  CLI::Option* const job =
      command->add_option("JOB", options->job_file, "Job file (YAML). Default: a job of default settings");
  AddOverrides(*command, options->overrides, "cluster.workers=4");
  command
      ->add_option("--run-folder", options->run_folder,
                   "Folder in which the run will write. Default: output.folder, or runs")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  command
      ->add_option("--parameters", options->parameters,
                   "Number of parameters of the model, if the job file does not tell it")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 44));
  command->add_option("--disk-megabytes", options->disk_megabytes, "Megabytes to write to each disk")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_flag("--json", options->json, "Print JSON");
  CLI::Option* const gpu =
      command
          ->add_option("--gpu", *gpu_kit,
                       "Run the GPU kit that was unpacked into FOLDER. Default: the kit that this program is part "
                       "of, or gpu-kit")
          ->type_name("FOLDER")
          ->expected(0, 1)
          ->excludes(job);
  for (const char* other : {"--set", "--parameters", "--disk-megabytes", "--json"}) gpu->excludes(other);
  // The doctor passes these to the doctors of the other nodes.
  command->add_option("--report-to", options->report_to)->group("");
  command->add_option("--token", options->token)->group("");
  command->add_option("--nodes", options->nodes)->group("");
  SetHelp(*command, kDoctorHelp);
  return {command, [=] {
            if (gpu->count() == 0) return Doctor(*options);
            return Complain(RunGpuKit(*gpu_kit, options->run_folder.empty() ? "gpu-results" : options->run_folder));
          }};
}

}  // namespace slackline::cli::doctor

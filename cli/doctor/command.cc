#include "cli/doctor/command.h"

#include <CLI/CLI.hpp>

#include "cli/complain.h"
#include "common/folder_name.h"

namespace slackline::cli::doctor {
namespace {

constexpr char kDoctorHelp[] = R"(
Looks at this machine before a run: programs, data, credentials, limits, memory, processors, clock, disks, ports, GPUs. Inside an
allocation of SLURM it looks at each node, at the network between them, and at SLURM's own settings. It writes and removes a small
file where the run is to write, and changes nothing else. Exit codes: 0 no problems (warnings are none), 1 problems, 2 wrong use.

Examples
  slackline doctor job.yaml --run-folder /scratch/runs/first
  slackline doctor job.yaml --parameters 25000000 --json
  salloc --nodes=4 slackline doctor job.yaml)";

}  // namespace

Command::Command(CLI::App& app) {
  command_ = app.add_subcommand("doctor", "Check a machine or an allocation before a run, and say what to mend");
  command_->add_option("JOB", options_.job_file, "The job file (YAML); default: a job of defaults");
  command_->add_option("--set", options_.overrides, "Override a setting of the job file, e.g. cluster.workers=4")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  command_->add_option("--run-folder", options_.run_folder, "Where the run is to be; default: output.folder, or runs")
      ->check(FolderMistake);
  command_
      ->add_option("--parameters", options_.parameters, "Parameters of the model, where the job file does not say them")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 44));
  command_->add_option("--disk-megabytes", options_.disk_megabytes, "Bytes to write to each disk")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command_->add_flag("--json", options_.json, "For programs");
  // From one doctor to those of the other nodes.
  command_->add_option("--report-to", options_.report_to)->group("");
  command_->add_option("--token", options_.token)->group("");
  command_->add_option("--nodes", options_.nodes)->group("");
  command_->footer(kDoctorHelp);
}

bool Command::parsed() const { return command_->parsed(); }

}  // namespace slackline::cli::doctor

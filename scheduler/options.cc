#include "scheduler/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include "common/address.h"
#include "common/folder_name.h"
#include "common/help.h"
#include "common/kill_point.h"
#include "common/version_text.h"

namespace slackline::scheduler {

std::optional<Options> ParseOptions(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app("Scheduler of one job: places shards, distributes training data, and ends the job.",
               "slackline-scheduler");
  app.set_version_flag("--version", VersionText("slackline-scheduler"));
  app.add_option("JOB", options.job_file, "Job file (YAML)")->required();
  app.add_option("--set", options.overrides,
                 "Change a setting of the job file, for example optimizer.lr=0.1. May be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--listen", options.listen, "Address to listen on. Default: network.listen and a free port")
      ->type_name("HOST:PORT")
      ->check(AddressMistake);
  app.add_option("--run-folder", options.run_folder,
                 "Folder for the results. Default: output.folder, or runs/NAME-DATE-TIME")
      ->type_name("DIR")
      ->check(FolderMistake);
  app.add_option("--address-file", options.address_file, "Also write HOST:PORT into this file")->type_name("FILE");
  app.add_flag("--resume", options.resume,
               "Continue the run in the run folder after its scheduler has crashed. Servers and workers find the new "
               "scheduler by scheduler.address in that folder, or by the same --listen");
  app.add_option("--from-checkpoint", options.from_checkpoint,
                 "Continue the run in the run folder from this checkpoint, with new servers and workers")
      ->type_name("DIR")
      ->excludes("--resume")
      ->needs("--run-folder");
  app.add_flag("--unwatched", options.unwatched,
               "Exit when the job ends, without waiting until a supervisor has asked for the result");
  std::string kill_at;
  // Not in --help: it is for tests.
  app.add_option("--kill-at", kill_at)->group("");
  SetHelp(app,
          {.example = "slackline-scheduler job.yaml --run-folder runs/first",
           .most_used = "--listen --run-folder --set",
           .groups = {{"Continue a run", "--resume --from-checkpoint"}, {"Supervision", "--address-file --unwatched"}},
           .text = "Exit codes: 0 done or stopped; 1 failed; 2 wrong use."});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : kWrongUse;
    return std::nullopt;
  }
  if (const absl::Status armed = kill_point::Arm(kill_at); !armed.ok()) {
    std::cerr << "--kill-at: " << armed.message() << std::endl;
    exit_code = kWrongUse;
    return std::nullopt;
  }
  return options;
}

}  // namespace slackline::scheduler

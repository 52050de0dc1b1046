#include "scheduler/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include "common/address.h"
#include "common/folder_name.h"
#include "common/kill_point.h"
#include "common/version_text.h"

namespace slackline::scheduler {
namespace {

constexpr int kWrongUse = 2;

}  // namespace

std::optional<Options> ParseOptions(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app("Decides who holds which part of the model, who trains on which data, and when the job is over.");
  app.set_version_flag("--version", VersionText("slackline-scheduler"));
  app.add_option("job", options.job_file, "Job file")->required()->type_name("JOB.yaml");
  app.add_option("--set", options.overrides, "Override a field of the job file, as optimizer.lr=0.1; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--listen", options.listen, "Listen here instead of network.listen and a free port")
      ->type_name("HOST:PORT")
      ->check(AddressMistake);
  app.add_option("--run-folder", options.run_folder, "Write the run here instead of output.folder")
      ->type_name("DIR")
      ->check(FolderMistake);
  app.add_option("--address-file", options.address_file, "Write host:port there too, once it is known")
      ->type_name("FILE");
  app.add_flag("--resume", options.resume,
               "Go on with the run in the run folder, whose scheduler has died; servers and workers find this one by\n"
               "scheduler.address there, or by the same --listen");
  app.add_option("--from-checkpoint", options.from_checkpoint,
                 "Go on with the run in the run folder from this checkpoint, with other servers and workers")
      ->type_name("DIR")
      ->excludes("--resume")
      ->needs("--run-folder");
  app.add_flag("--unwatched", options.unwatched,
               "Nobody will ask how the job has ended: end as soon as all is over, and do not wait to be asked");
  std::string kill_at;
  // Not in --help: it is for tests.
  app.add_option("--kill-at", kill_at)->group("");
  app.footer("Exit codes: 0 done or stopped, 1 failed, 2 wrong use.");
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

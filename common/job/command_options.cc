#include "common/job/command_options.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/text/member_name.h"

namespace slackline {

void AddJobFile(CLI::App& app, std::string& job_file, const char* what) {
  app.add_option("JOB", job_file, what)->required();
}

CLI::Option* AddOverrides(CLI::App& app, std::vector<std::string>& overrides, const char* example) {
  return app
      .add_option("--set", overrides,
                  absl::StrCat("Change a setting of the job file, for example ", example, ". May be repeated"))
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

CLI::Option* AddMemberOptions(CLI::App& app, MemberOptions& options, const char* name) {
  AddJobFile(app, options.job_file, "Job file (YAML), the same for all processes of the job");
  CLI::Option* const scheduler =
      app.add_option("--scheduler", options.scheduler,
                     "Address of the scheduler, or the file scheduler.address (a path with a /)")
          ->type_name("HOST:PORT|FILE")
          ->check(PlaceMistake);
  AddOverrides(app, options.overrides);
  app.add_option("--name", options.name, name)->type_name("NAME")->check(MemberNameMistake);
  app.add_option("--topology", options.topology,
                 "Place in the network: switches from the top down, then the node, as in SLURM_TOPOLOGY_ADDR")
      ->type_name("SWITCH.NODE");
  app.add_flag("--supervised", options.supervised, "Ignore SIGTERM; the supervisor of this process sends SIGINT");
  return scheduler;
}

}  // namespace slackline

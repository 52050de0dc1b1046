// Commands for a run that goes on: `slackline status`, `servers` and `checkpoint`.
#include <memory>

#include "cli/commands/checkpoints.h"
#include "cli/commands/servers.h"
#include "cli/commands/shared_options.h"
#include "common/help.h"

namespace slackline::cli {
namespace {

const HelpText kStatusHelp = {.example = "slackline status runs/first --watch",
                              .most_used = "--watch --json --job",
                              .text = "Exit codes: slackline help status.",
                              .examples =
                                  "slackline status runs/fashion-mnist-mlp-20250131-120000\n"
                                  "slackline status runs/first --json | jq .workers\n"
                                  "slackline status 127.0.0.1:34567 --watch\n"
                                  "slackline status node1:7000 --job job.yaml\n"
                                  "slackline status http://127.0.0.1:8080/ --watch"};

const HelpText kServersHelp = {
    .example = "slackline servers add runs/first",
    .text =
        "Shards move while training continues; workers that push to a moving shard wait for some tenths of a second. "
        "`slackline train` starts the added servers. Without it, start them by hand: slackline-ps JOB.yaml "
        "--scheduler RUN/scheduler.address --name NAME.\n\n"
        "Shards do not move with durability.mode: replicated. More: slackline help resize.",
    .examples =
        "slackline servers add runs/first --count 2 --wait 0\n"
        "slackline servers drain runs/first ps-1"};

const HelpText kCheckpointHelp = {
    .example = "slackline checkpoint runs/first",
    .text =
        "Training continues meanwhile. The command prints the folder of the checkpoint when it is complete. If no "
        "checkpoint can be made, the exit code is 1. SIGUSR1 to `slackline train` or to the scheduler has the same "
        "effect.",
    .examples = "slackline checkpoint 127.0.0.1:34567"};

}  // namespace

AddedCommand AddStatus(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "Show the progress, workers and servers of a run");
  AddRun(*command, *options, "Run folder, HOST:PORT of the scheduler, or address of the status page");
  auto* watch = command->add_flag("--watch", options->watch, "Show the status every second until the run ends");
  command->add_flag("--json", options->json, "Print JSON, with the fields of docs/status-fields.md")->excludes(watch);
  SetHelp(*command, kStatusHelp);
  return Added(command, [options] { return Status(*options); });
}

AddedCommand AddServers(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<ServersOptions>();
  CLI::App* command = app.add_subcommand("servers", "Add servers to a run, or remove some, while it trains");
  command->require_subcommand(1);
  SetHelp(*command, kServersHelp);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    AddRun(*verb, options->run);
    verb->add_option_function<double>(
            "--wait", [options](double seconds) { options->wait = absl::Seconds(seconds); },
            "Time to wait until the shards have moved; 0: do not wait. Default: 120")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.0, 1e6));
    SetHelp(*verb, kServersHelp);
    return verb;
  };
  CLI::App* more = add("add", "Add servers, which take shards from the others");
  options->add = 1;
  more->add_option("--count", options->add, "Number of servers to add")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  CLI::App* fewer = add("drain", "Remove servers, whose shards move to the others");
  fewer->add_option("NAME", options->drain, "Names of the servers, as `slackline status` shows them")->required();
  return Added(command, [options] {
    if (!options->drain.empty()) options->add = 0;
    return ChangeServers(*options);
  });
}

AddedCommand AddCheckpoint(CLI::App& app, const char* /*program*/) {
  const auto run = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("checkpoint", "Make a checkpoint of a run now, and wait for it");
  AddRun(*command, *run);
  SetHelp(*command, kCheckpointHelp);
  return Added(command, [run] { return MakeCheckpoint(*run); });
}

}  // namespace slackline::cli

// The `slackline` command.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/base/command.h"
#include "cli/base/complain.h"
#include "cli/base/sibling.h"
#include "cli/commands/check.h"
#include "cli/commands/checkpoints.h"
#include "cli/commands/credentials.h"
#include "cli/commands/evaluate.h"
#include "cli/commands/packages.h"
#include "cli/commands/runs.h"
#include "cli/commands/servers.h"
#include "cli/commands/service.h"
#include "cli/commands/shared_options.h"
#include "cli/commands/status.h"
#include "cli/commands/stop.h"
#include "cli/commands/train.h"
#include "cli/doctor/command.h"
#include "cli/help/command.h"
#include "cli/prepare/command.h"
#include "cli/run/node_scripts.h"
#include "cli/slurm/command.h"
#include "common/log/log_format.h"
#include "common/log/output.h"
#include "common/rpc/channel.h"
#include "common/text/help.h"
#include "common/text/nearest_word.h"
#include "common/text/version_text.h"

namespace slackline::cli {
namespace {

constexpr char kAbout[] = "Trains PyTorch models asynchronously, with parameter servers.";

// The most used commands come first in `slackline --help`, without a heading.
constexpr char kMostUsed[] = "";

// All commands, in the order of `slackline --help`.
constexpr CommandEntry kCommands[] = {
    {kMostUsed, "train", AddTrain},
    {kMostUsed, "status", AddStatus},
    {kMostUsed, "resume", AddResume},
    {"Before a run", "check", AddCheck},
    {"Before a run", "doctor", doctor::AddDoctor},
    {"Before a run", "prepare", prepare::AddPrepare},
    {"Before a run", "credentials", AddCredentials},
    {"Before a run", "placement", slurm::AddPlacement},
    {"Start and change runs", "launch", AddLaunch},
    {"Start and change runs", "slurm", slurm::AddSlurm},
    {"Start and change runs", "servers", AddServers},
    {"Start and change runs", "checkpoint", AddCheckpoint},
    {"Start and change runs", "stop", AddStop},
    {"Many jobs", "service", AddService},
    {"Many jobs", "submit", AddSubmit},
    {"Many jobs", "jobs", AddJobs},
    {"Many jobs", "logs", AddLogs},
    {"Many jobs", "cancel", AddCancel},
    {"Many jobs", "rm", AddRemove},
    {"Results", "runs", AddRuns},
    {"Results", "checkpoints", AddCheckpoints},
    {"Results", "export", AddExport},
    {"Results", "evaluate", AddEvaluate},
    {"Results", "trace", AddTrace},
    {"Results", "track", AddTrack},
    {"Compare and plan", "compare", AddCompare},
    {"Compare and plan", "experiment", AddExperiment},
    {"Compare and plan", "simulate", AddSimulate},
    {"Compare and plan", "plan", AddPlan},
    {"Explain", "help", help::AddHelp},
    {"Explain", "completion", help::AddCompletion},
};

HelpText MainHelp() {
  HelpText help = {.example = "slackline train job.yaml",
                   .text =
                       "Show the options of a command with `slackline COMMAND --help`, and an explanation with "
                       "`slackline help TOPIC`.\n\n"
                       "Exit codes: 0 done; 1 failed or stopped; 2 the command line or the job file is wrong, and "
                       "nothing was changed."};
  for (const CommandEntry& command : kCommands) {
    const absl::string_view group = command.group;
    if (!group.empty() && (help.groups.empty() || help.groups.back().first != group))
      help.groups.emplace_back(group, "");
    std::string& names = group.empty() ? help.most_used : help.groups.back().second;
    absl::StrAppend(&names, names.empty() ? "" : " ", command.name);
  }
  return help;
}

// Empty if word `index` is a flag or one of `app`'s subcommands, and so on for the words behind it; else what is wrong.
std::string SubcommandMistake(const CLI::App& app, int index, int argc, char** argv) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (index < argc && argv[index][0] == '-')) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    names.push_back(command->get_name());
    if (index < argc && command->get_name() == argv[index]) return SubcommandMistake(*command, index + 1, argc, argv);
  }
  const std::string before = index > 1 ? absl::StrCat(" after '", argv[index - 1], "'") : "";
  const std::string found = index < argc ? absl::StrCat("'", argv[index], "'") : "no command";
  const std::string nearest = index < argc ? NearestWord(argv[index], names) : "";
  const std::string meant = nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
  return absl::StrCat("found ", found, before, meant, meant.empty() ? "; allowed" : " Allowed", " is ",
                      absl::StrJoin(names, ", "));
}

int Main(int argc, char** argv) {
  rpc::SilenceGrpcLog();
  // pip's command slackline-worker starts this program under that name, so that a missing LibTorch is named.
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == kWorkerProgram) {
    log::InitialiseCommand(kWorkerProgram);
    const absl::StatusOr<std::filesystem::path> worker = Sibling(kWorkerProgram);
    return Fail(worker.ok() ? Become(*worker, {argv + 1, argv + argc}) : worker.status());
  }
  log::InitialiseCommand("slackline");
  uint32_t scripts = 0;
  if (argc > 3 && absl::string_view(argv[1]) == kNodeScripts && absl::SimpleAtoi(argv[2], &scripts)) {
    return RunNodeScripts(scripts, {argv + 3, argv + argc});
  }
  CLI::App app(kAbout, "slackline");
  app.set_version_flag("--version", VersionText("slackline"));
  app.require_subcommand(1);
  std::vector<AddedCommand> added;
  for (const CommandEntry& command : kCommands) added.push_back(command.add(app, argv[0]));
  SetHelp(app, MainHelp());

  if (const std::string mistake = SubcommandMistake(app, 1, argc, argv); !mistake.empty()) {
    std::fprintf(stderr, "slackline: %s\n", mistake.c_str());
    return kExitWrongUse;
  }
  std::vector<std::string> words = KeepBrackets(argc, argv);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  try {
    app.parse(argc, pointers.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitWrongUse;
  }
  for (const AddedCommand& command : added) {
    if (command.app->parsed()) return command.run();
  }
  return kExitWrongUse;  // not reached: a command is required
}

}  // namespace
}  // namespace slackline::cli

int main(int argc, char** argv) { return slackline::FinishStdout(slackline::cli::Main(argc, argv)); }

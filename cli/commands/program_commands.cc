// Commands that another program does, its help included: `slackline experiment`, `compare`, `plan`, `trace`,
// `track` and `simulate`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/base/complain.h"
#include "cli/base/sibling.h"
#include "cli/commands/experiment.h"
#include "cli/commands/shared_options.h"

namespace slackline::cli {
namespace {

// Adds a command whose options, --help too, are those of a Python package.
AddedCommand AddPackage(CLI::App& app, const char* name, const char* what, int (*run)(const ExperimentOptions&)) {
  const auto options = std::make_shared<ExperimentOptions>();
  CLI::App* command = app.add_subcommand(name, what);
  command->set_help_flag();
  command->allow_extras();
  command->add_option("--python", options->python, "Python interpreter. Default: that of the build, or python3")
      ->type_name("PROGRAM");
  return Added(command, [options, command, run] {
    options->arguments = command->remaining();
    return run(*options);
  });
}

int Simulate(const std::vector<std::string>& arguments) {
  const auto program = Sibling("slackline-simulator");
  const absl::Status status = program.ok() ? Become(*program, arguments) : program.status();
  std::fprintf(stderr, "slackline simulate: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

}  // namespace

AddedCommand AddExperiment(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "experiment", "Run a grid of jobs with repeats, and compare them", Experiment);
}

AddedCommand AddCompare(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "compare", "Compare runs in tables, plots and one page", Compare);
}

AddedCommand AddPlan(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "plan", "Estimate how long a job takes on N nodes", Plan);
}

AddedCommand AddTrace(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "trace", "Convert traces of workers to OpenTelemetry spans", TraceFiles);
}

AddedCommand AddTrack(CLI::App& app, const char* /*program*/) {
  return AddPackage(app, "track", "Write a run's figures for Weights & Biases and MLflow", Track);
}

AddedCommand AddSimulate(CLI::App& app, const char* /*program*/) {
  CLI::App* command = app.add_subcommand("simulate", "Run a job in virtual time, in one process");
  command->set_help_flag();
  command->prefix_command();
  return Added(command, [command] { return Simulate(command->remaining()); });
}

}  // namespace slackline::cli

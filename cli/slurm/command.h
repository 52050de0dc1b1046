// `slackline slurm ...` and `slackline placement` on the command line.
#pragma once

#include <string>

#include "cli/slurm/launch.h"
#include "cli/slurm/node.h"
#include "cli/slurm/placement.h"
#include "cli/slurm/submit.h"

namespace CLI {
class App;
}

namespace slackline::cli::slurm {

// Command-line options of `slackline slurm` and `slackline placement`, and the commands themselves.
//
// Thread-safety: none.
class Command {
 public:
  // `program` is the name by which the user called this program. Adds the subcommands to `app`, which must live as long
  // as this object.
  Command(CLI::App& app, const std::string& program);

  // True if the user called one of these subcommands.
  bool parsed() const;
  // Runs the subcommand. Returns the exit code.
  int Run();

 private:
  CLI::App* slurm_;
  CLI::App* submit_command_;
  CLI::App* run_command_;
  CLI::App* node_command_;
  CLI::App* placement_command_;
  SubmitOptions submit_;
  LaunchOptions run_;
  NodeOptions node_;
  PlacementOptions placement_;
};

}  // namespace slackline::cli::slurm

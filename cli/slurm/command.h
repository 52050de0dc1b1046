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

// Thread-safety: none.
class Command {
 public:
  // `program`: as the user called this one. Adds the subcommands to `app`, which must live as long as this.
  Command(CLI::App& app, const std::string& program);

  // One of them is what the user wants.
  bool parsed() const;
  // Returns the exit code.
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

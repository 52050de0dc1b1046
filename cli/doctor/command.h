// `slackline doctor` on the command line.
#pragma once

#include "cli/doctor/doctor.h"

namespace CLI {
class App;
}

namespace slackline::cli::doctor {

// Command-line options of `slackline doctor`, and the command itself.
//
// Thread-safety: none.
class Command {
 public:
  // Adds the subcommand to `app`, which must live as long as this object.
  explicit Command(CLI::App& app);

  bool parsed() const;
  // Examines the machines. Returns the exit code.
  int Run() const { return Doctor(options_); }

 private:
  CLI::App* command_;
  DoctorOptions options_;
};

}  // namespace slackline::cli::doctor

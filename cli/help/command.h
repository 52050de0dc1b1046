// `slackline help` and `slackline completion` on the command line.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace slackline::cli::help {

// Command-line options of the two commands, and the commands themselves.
//
// Thread-safety: none.
class Command {
 public:
  // Adds the subcommands to `app`, which must live as long as this object.
  explicit Command(CLI::App& app);

  // True if the user called one of these subcommands.
  bool parsed() const;
  // Runs the subcommand. Returns the exit code.
  int Run() const;

 private:
  int ShowTopic() const;

  CLI::App& app_;
  CLI::App* help_command_;
  CLI::App* completion_command_;
  std::string topic_;
  std::string shell_;
};

}  // namespace slackline::cli::help

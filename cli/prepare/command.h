// The flags of `slackline prepare`.
#pragma once

#include "cli/prepare/prepare.h"

namespace CLI {
class App;
}

namespace slackline::cli::prepare {

// Command-line options of `slackline prepare`, and the command itself.
//
// Thread-safety: none.
class Command {
 public:
  // Adds the command to `app`, which must outlive it.
  explicit Command(CLI::App& app);

  bool parsed() const;
  // Prepares or verifies images. Returns the exit code.
  int Run() const;

 private:
  PrepareOptions options_;
  std::string verified_;
  CLI::App* command_ = nullptr;
};

}  // namespace slackline::cli::prepare

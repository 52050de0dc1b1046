// Commands of `slackline`, as the program lists and runs them. A new one gets a line in cli/main.cc.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace slackline::cli {

// A command whose options are on the command line.
struct AddedCommand {
  const CLI::App* app;
  std::function<int()> run;  // returns the exit code
};

struct CommandEntry {
  const char* group;  // heading in `slackline --help`
  const char* name;
  // Adds the command to `app`, which outlives what is returned. `program`: name by which the user called this program.
  AddedCommand (*add)(CLI::App& app, const char* program);
};

}  // namespace slackline::cli

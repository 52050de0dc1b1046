// Commands of `slackline`, as the program lists and runs them. A new one gets a function here, and a line in
// cli/program.cc.
#pragma once

#include <functional>
#include <memory>

namespace CLI {
class App;
}

namespace slackline::cli {

// A command whose options are on the command line.
struct AddedCommand {
  std::function<bool()> parsed;  // returns true if the user called it
  std::function<int()> run;      // returns the exit code
};

struct CommandEntry {
  const char* group;  // heading in `slackline --help`
  const char* name;
  // Adds the command to `app`, which outlives what is returned. `program`: name by which the user called this program.
  // Null if the entry before this one adds it, too.
  AddedCommand (*add)(CLI::App& app, const char* program);
};

// Adds a command that is a class.
template <typename Class, typename... Arguments>
AddedCommand AddClass(CLI::App& app, Arguments... arguments) {
  const auto command = std::make_shared<Class>(app, arguments...);
  return {[command] { return command->parsed(); }, [command] { return command->Run(); }};
}

AddedCommand AddTrain(CLI::App& app, const char* program);
AddedCommand AddLaunch(CLI::App& app, const char* program);
AddedCommand AddResume(CLI::App& app, const char* program);
AddedCommand AddCheck(CLI::App& app, const char* program);
AddedCommand AddCredentials(CLI::App& app, const char* program);
AddedCommand AddStatus(CLI::App& app, const char* program);
AddedCommand AddServers(CLI::App& app, const char* program);
AddedCommand AddCheckpoint(CLI::App& app, const char* program);
AddedCommand AddRuns(CLI::App& app, const char* program);
AddedCommand AddCheckpoints(CLI::App& app, const char* program);
AddedCommand AddExport(CLI::App& app, const char* program);
AddedCommand AddCompare(CLI::App& app, const char* program);
AddedCommand AddExperiment(CLI::App& app, const char* program);
AddedCommand AddPlan(CLI::App& app, const char* program);
AddedCommand AddTrace(CLI::App& app, const char* program);
AddedCommand AddTrack(CLI::App& app, const char* program);
AddedCommand AddSimulate(CLI::App& app, const char* program);

}  // namespace slackline::cli

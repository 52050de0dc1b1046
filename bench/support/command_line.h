// Options that the command lines of bench/ share.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

namespace slackline::bench {

constexpr int kExitUsage = 2;

// Duration, number of repeats, and output format of a program's measurements.
struct Effort {
  double seconds = 3;
  int repeats = 3;
  bool json = false;
};

inline void AddEffort(CLI::App& app, Effort& effort) {
  app.add_option("--seconds", effort.seconds, "Time of each measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--repeats", effort.repeats, "How often all of it is measured, in turns")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag("--json", effort.json, "One JSON object a line, for each repeat, instead of a table of medians");
}

// Returns the exit code if the program must end now, otherwise nothing.
inline std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return std::nullopt;
}

}  // namespace slackline::bench

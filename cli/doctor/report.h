// How findings are shown.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/doctor/finding.h"

namespace slackline::cli::doctor {

// Of one machine.
struct Examined {
  std::string host;
  Findings findings;
};

// A line each; below warnings and problems what is needed and what to do. At the end a line that counts them.
std::string RenderText(const std::vector<Examined>& machines);
// {"problems": 0, "warnings": 1, "machines": [{"host": ..., "findings": [{"level", "check", "found", "needed",
// "advice"}]}]}
std::string RenderJson(const std::vector<Examined>& machines);
// Of one machine, as RenderJson() has it among the machines.
//   kInvalidArgument  it is something else
absl::StatusOr<Examined> ParseMachine(const std::string& json);
std::string RenderMachine(const Examined& machine);

size_t Count(const std::vector<Examined>& machines, Level level);

}  // namespace slackline::cli::doctor

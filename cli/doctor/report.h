// Findings as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/doctor/finding.h"

namespace slackline::cli::doctor {

// Findings of one machine.
struct Examined {
  std::string host;
  Findings findings;
};

// Renders one line per finding; below warnings and problems, what is needed and what to do. The last line counts them.
std::string RenderText(const std::vector<Examined>& machines);
// Renders {"problems": 0, "warnings": 1, "machines": [{"host": ..., "findings": [{"level", "check", "found", "needed",
// "advice"}]}]}
std::string RenderJson(const std::vector<Examined>& machines);
// Parse and render one machine, as an element of "machines" in RenderJson().
//   kInvalidArgument  the text is something else
absl::StatusOr<Examined> ParseMachine(const std::string& json);
std::string RenderMachine(const Examined& machine);

size_t Count(const std::vector<Examined>& machines, Level level);

}  // namespace slackline::cli::doctor

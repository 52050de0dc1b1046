#include "cli/doctor/finding.h"

#include <iterator>
#include <utility>

namespace slackline::cli::doctor {

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kSkipped:
      return "skipped";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "unknown";
}

Finding Fine(std::string check, std::string found) { return {Level::kOk, std::move(check), std::move(found), "", ""}; }

Finding Skipped(std::string check, std::string why) {
  return {Level::kSkipped, std::move(check), std::move(why), "", ""};
}

void Append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace slackline::cli::doctor

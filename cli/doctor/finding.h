// Result of `slackline doctor` for one thing that it has examined.
#pragma once

#include <string>
#include <vector>

namespace slackline::cli::doctor {

enum class Level {
  kOk,
  // Check was not possible, or does not concern this job; `found` says why.
  kSkipped,
  // The job runs, but slower or less safely than it could.
  kWarning,
  // The job does not run, or will not survive what it should.
  kProblem,
};

// "ok", "skipped", "warning", "problem".
const char* LevelName(Level level);

struct Finding {
  Level level = Level::kOk;
  // Name of what was examined, in one or two words: "descriptors".
  std::string check;
  std::string found;
  // Requirement and advice; set only for warnings and problems.
  std::string needed;
  std::string advice;
};

using Findings = std::vector<Finding>;

Finding Fine(std::string check, std::string found);
Finding Skipped(std::string check, std::string why);

void Append(Findings& findings, Findings more);

}  // namespace slackline::cli::doctor

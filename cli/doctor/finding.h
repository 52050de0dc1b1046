// What `slackline doctor` says of one thing that it looked at.
#pragma once

#include <string>
#include <vector>

namespace slackline::cli::doctor {

enum class Level {
  kOk,
  // Could not be looked at, or does not concern this job; `found` says why.
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
  // What was looked at, in one word or two: "descriptors".
  std::string check;
  std::string found;
  // Only with warnings and problems.
  std::string needed;
  std::string advice;
};

using Findings = std::vector<Finding>;

Finding Fine(std::string check, std::string found);
Finding Skipped(std::string check, std::string why);

void Append(Findings& findings, Findings more);

}  // namespace slackline::cli::doctor

#include "common/process/kill_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace slackline::kill_point {
namespace {

struct Armed {
  std::string point;
  std::atomic<int64_t> left{0};
};

// The one of this process: its end is the process's.
Armed& TheArmed() {
  static Armed armed;
  return armed;
}

}  // namespace

absl::Status Arm(const std::string& what) {
  if (what.empty()) return absl::OkStatus();
  const size_t colon = what.find(':');
  int64_t count = 1;
  const bool counted = colon == std::string::npos || (absl::SimpleAtoi(what.substr(colon + 1), &count) && count > 0);
  if (colon == 0 || !counted) {
    return absl::InvalidArgumentError(absl::StrCat("found '", what, "'; allowed is POINT or POINT:N with N above 0"));
  }
  TheArmed().left = count;
  TheArmed().point = what.substr(0, colon);
  return absl::OkStatus();
}

void Passed(const char* point) {
  if (TheArmed().point == point && --TheArmed().left == 0) ::kill(::getpid(), SIGKILL);
}

}  // namespace slackline::kill_point

#include "cli/complain.h"

#include <cstdio>
#include <string>

namespace slackline::cli {

int ComplainOfWrongUse(const absl::Status& status) {
  std::fprintf(stderr, "slackline: %s\n", std::string(status.message()).c_str());
  return kExitWrongUse;
}

int Complain(const absl::Status& status) {
  ComplainOfWrongUse(status);
  const bool wrong_use = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return wrong_use ? kExitWrongUse : kExitFailed;
}

}  // namespace slackline::cli

#include "cli/complain.h"

#include "common/logging.h"

namespace slackline::cli {

int ComplainOfWrongUse(const absl::Status& status) {
  log::Error(status.message());
  return kExitWrongUse;
}

int Complain(const absl::Status& status) {
  ComplainOfWrongUse(status);
  const bool wrong_use = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return wrong_use ? kExitWrongUse : kExitFailed;
}

}  // namespace slackline::cli

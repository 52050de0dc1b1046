#include "cli/base/complain.h"

#include "common/log/logging.h"

namespace slackline::cli {

int ComplainOfWrongUse(const absl::Status& status) {
  log::Error(status.message());
  return kExitWrongUse;
}

int Fail(const absl::Status& status) {
  log::Error(status.message());
  return kExitFailed;
}

int Complain(const absl::Status& status) {
  const bool wrong_use = absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status);
  return wrong_use ? ComplainOfWrongUse(status) : Fail(status);
}

}  // namespace slackline::cli

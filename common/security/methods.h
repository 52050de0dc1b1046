// Which role may call which method: one line a method.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/security/role.h"

namespace slackline::security {

struct Method {
  // As descriptors have it: "slackline.wire.Scheduler.GetStatus".
  absl::string_view name;
  Roles callers;
};

// Every method of every service.
absl::Span<const Method> Methods();
// Nobody, for a method that is not there.
Roles CallersOf(absl::string_view method);

}  // namespace slackline::security

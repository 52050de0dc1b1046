// The roles that may call each method, one line per method.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/security/role.h"

namespace slackline::security {

struct Method {
  // Full name, as in descriptors: "slackline.wire.Scheduler.GetStatus".
  absl::string_view name;
  Roles callers;
};

// Returns every method of every service.
absl::Span<const Method> Methods();
// Returns the roles that may call the method; none for an unknown method.
Roles CallersOf(absl::string_view method);

}  // namespace slackline::security

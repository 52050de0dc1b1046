// Formats durations for messages.
#pragma once

#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace slackline::ps {

// Returns, for example, "1.2 s".
inline std::string Readable(absl::Duration duration) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
}

}  // namespace slackline::ps

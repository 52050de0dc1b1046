// Figures in a form for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace slackline::cli::doctor {

// Examples: "812 MiB", "3.2 GiB"
std::string Bytes(uint64_t bytes);
// Examples: "1.2 ms", "3.4 s"
std::string Time(absl::Duration duration);

}  // namespace slackline::cli::doctor

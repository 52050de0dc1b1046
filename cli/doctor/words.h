// Figures as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace slackline::cli::doctor {

// "812 MiB", "3.2 GiB"
std::string Bytes(uint64_t bytes);
// "1.2 ms", "3.4 s"
std::string Time(absl::Duration duration);

}  // namespace slackline::cli::doctor

// A number with its noun.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace slackline {

// Returns, for example, "1 worker" or "3 workers".
inline std::string Counted(uint64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace slackline

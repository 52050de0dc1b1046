// Text as JSON has it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// In quotes, with whatever must be escaped; bytes that are no UTF-8 become U+FFFD.
std::string JsonText(absl::string_view text);

}  // namespace slackline

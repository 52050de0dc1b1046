// Text in JSON.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// Returns `text` in quotes with the necessary escapes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(absl::string_view text);

}  // namespace slackline

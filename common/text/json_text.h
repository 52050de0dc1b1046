// Values and text in JSON. Files that parse or write JSON with these functions need not compile nlohmann's parser and
// writer themselves.
#pragma once

#include <limits>
#include <string>

#include <nlohmann/json_fwd.hpp>
#include "absl/strings/string_view.h"

namespace slackline {

// Returns `text` in quotes with the necessary escapes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(absl::string_view text);

// Returns the value that `text` holds, without what is deeper than `depth_max`. The result is discarded
// (is_discarded()) if `text` is not JSON.
nlohmann::json ParseJson(absl::string_view text, int depth_max = std::numeric_limits<int>::max());
// Same as ParseJson(), for a file. The result is discarded if there is no such file, too.
nlohmann::json ReadJson(const std::string& path);

// Returns `value` in JSON: with `indent` spaces for each level, or in one line if it is negative. Bytes that are not
// UTF-8 become U+FFFD.
std::string DumpJson(const nlohmann::json& value, int indent = -1);
std::string DumpJson(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace slackline

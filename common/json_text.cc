#include "common/json_text.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/utf8.h"

namespace slackline {
std::string JsonText(absl::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = Utf8SequenceBytes(text);
    const char first = text.front();
    if (length == 0) {
      json += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      json += {'\\', first};
    } else if (first == '\n') {
      json += "\\n";
    } else if (first == '\t') {
      json += "\\t";
    } else if (static_cast<uint8_t>(first) < 0x20 || first == 0x7f) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned>(first));
    } else {
      json.append(text.data(), length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return json + "\"";
}

}  // namespace slackline

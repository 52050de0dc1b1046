#include "common/json_text.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace slackline {
namespace {

// Of the UTF-8 sequence that `text` begins with; 0 where it begins with none (overlong, surrogate, cut short).
size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool beyond = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

std::string JsonText(absl::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
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

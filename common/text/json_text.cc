#include "common/text/json_text.h"

#include <cstdint>
#include <fstream>

#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "common/text/utf8.h"

namespace slackline {
namespace {

template <typename Json>
std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

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

nlohmann::json ParseJson(absl::string_view text, int depth_max) {
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= depth_max; };
  return nlohmann::json::parse(text.begin(), text.end(), shallow, /*allow_exceptions=*/false);
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
}

std::string DumpJson(const nlohmann::json& value, int indent) { return Dump(value, indent); }
std::string DumpJson(const nlohmann::ordered_json& value, int indent) { return Dump(value, indent); }

}  // namespace slackline

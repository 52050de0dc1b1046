#include "cli/base/log_line.h"

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "common/json_text.h"

namespace slackline::cli {

std::string PlainLogLine(const std::string& line) {
  if (line.empty() || line.front() != '{') return line;
  const nlohmann::json fields = ParseJson(line);
  const auto text = [&](const char* name) {
    const auto found = fields.find(name);
    return found != fields.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!fields.is_object() || text("time").empty() || text("level").empty()) return line;
  return absl::StrCat(text("time"), " ", text("process"), " ", text("level"), ": ", text("message"));
}

}  // namespace slackline::cli

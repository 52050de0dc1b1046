#include "cli/base/process_line.h"

#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace slackline::cli {
namespace {

constexpr size_t kStateField = 0, kStartField = 19;  // fields 3 and 22 of proc(5), behind the name

}  // namespace

std::string FirstLine(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<ProcessLine> ReadProcessLine(const std::filesystem::path& file) {
  const std::string line = FirstLine(file);
  // The second field is a name in brackets, which may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  ProcessLine process;
  if (fields.size() <= kStartField || !absl::SimpleAtoi(line.substr(0, line.find(' ')), &process.pid)) {
    return std::nullopt;
  }
  process.state = fields[kStateField].front();
  process.start = fields[kStartField];
  return process;
}

}  // namespace slackline::cli

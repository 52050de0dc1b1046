#include "cli/run/not_started.h"

#include <algorithm>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

std::string LogOf(const std::filesystem::path& run, const std::string& process) {
  return (run / "logs" / absl::StrCat(process, ".log")).string();
}

}  // namespace

std::vector<ProcessRecord> NotStarted(const std::filesystem::path& run, const wire::GetStatusReply& status) {
  std::vector<ProcessRecord> found;
  for (ProcessRecord& process : RunFolder::ReadProcesses(run)) {
    const bool known = process.role == "scheduler" || process.state == "running" || process.state == "exit code 0" ||
                       std::any_of(status.members().begin(), status.members().end(),
                                   [&](const wire::MemberStatus& member) { return member.name() == process.name; });
    if (!known) found.push_back(std::move(process));
  }
  return found;
}

std::string RenderNotStarted(const std::filesystem::path& run, const std::vector<ProcessRecord>& processes) {
  std::string out;
  for (const ProcessRecord& process : processes) {
    absl::StrAppend(&out, OneLine(process.name), " could not be started: ", OneLine(process.state), ", started ",
                    process.restarts + 1, process.restarts == 0 ? " time" : " times", "; ",
                    LogOf(run, OneLine(process.name)), " says why\n");
  }
  return out;
}

std::string WithNotStarted(const std::string& status, const std::filesystem::path& run,
                           const std::vector<ProcessRecord>& processes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ProcessRecord& process : processes) {
    list.push_back({{"name", process.name},
                    {"role", process.role},
                    {"state", process.state},
                    {"starts", process.restarts + 1},
                    {"log", LogOf(run, process.name)}});
  }
  // The other fields stay as they were written.
  const size_t end = status.rfind('}');
  if (end == std::string::npos) return status;
  const bool first = status.find_last_not_of(" \n", end - 1) == status.find('{');
  return absl::StrCat(status.substr(0, end), first ? "" : ",", "\"not_started\":", DumpJson(list), status.substr(end));
}

}  // namespace slackline::cli

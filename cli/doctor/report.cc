#include "cli/doctor/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/json_text.h"

namespace slackline::cli::doctor {
namespace {

using Json = nlohmann::json;

Json ToJson(const Examined& machine) {
  Json findings = Json::array();
  for (const Finding& finding : machine.findings) {
    Json entry = {{"level", LevelName(finding.level)}, {"check", finding.check}, {"found", finding.found}};
    if (!finding.needed.empty()) entry["needed"] = finding.needed;
    if (!finding.advice.empty()) entry["advice"] = finding.advice;
    findings.push_back(std::move(entry));
  }
  return {{"host", machine.host}, {"findings", std::move(findings)}};
}

Level LevelOf(const std::string& name) {
  for (const Level level : {Level::kOk, Level::kSkipped, Level::kWarning, Level::kProblem}) {
    if (name == LevelName(level)) return level;
  }
  return Level::kProblem;
}

void AppendLines(const Finding& finding, std::string& text) {
  absl::StrAppendFormat(&text, "%-8s %-22s %s\n", LevelName(finding.level), finding.check, finding.found);
  if (!finding.needed.empty()) absl::StrAppendFormat(&text, "%-31s needed: %s\n", "", finding.needed);
  if (!finding.advice.empty()) absl::StrAppendFormat(&text, "%-31s to do:  %s\n", "", finding.advice);
}

std::string Counted(size_t count, const char* what) { return absl::StrCat(count, " ", what, count == 1 ? "" : "s"); }

}  // namespace

size_t Count(const std::vector<Examined>& machines, Level level) {
  size_t count = 0;
  for (const Examined& machine : machines) {
    count += static_cast<size_t>(std::count_if(machine.findings.begin(), machine.findings.end(),
                                               [&](const Finding& finding) { return finding.level == level; }));
  }
  return count;
}

std::string RenderText(const std::vector<Examined>& machines) {
  std::string text;
  for (const Examined& machine : machines) {
    if (machines.size() > 1) absl::StrAppend(&text, machine.host, "\n");
    for (const Finding& finding : machine.findings) AppendLines(finding, text);
    if (machines.size() > 1) absl::StrAppend(&text, "\n");
  }
  const size_t problems = Count(machines, Level::kProblem);
  absl::StrAppend(&text, Counted(machines.size(), "machine"), ": ", Counted(problems, "problem"), ", ",
                  Counted(Count(machines, Level::kWarning), "warning"), "\n");
  return text;
}

std::string RenderJson(const std::vector<Examined>& machines) {
  Json all = Json::array();
  for (const Examined& machine : machines) all.push_back(ToJson(machine));
  const Json json = {{"problems", Count(machines, Level::kProblem)},
                     {"warnings", Count(machines, Level::kWarning)},
                     {"machines", std::move(all)}};
  return absl::StrCat(DumpJson(json, 2), "\n");
}

std::string RenderMachine(const Examined& machine) { return DumpJson(ToJson(machine), -1); }

absl::StatusOr<Examined> ParseMachine(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const absl::Status wrong = absl::InvalidArgumentError("found no findings of a machine");
  if (!json.is_object() || !json.contains("findings") || !json["findings"].is_array()) return wrong;
  const auto word = [](const Json& of, const char* name) {
    return of.is_object() && of.contains(name) && of[name].is_string() ? of[name].get<std::string>() : std::string();
  };
  Examined machine = {word(json, "host"), {}};
  for (const Json& entry : json["findings"]) {
    machine.findings.push_back({LevelOf(word(entry, "level")), word(entry, "check"), word(entry, "found"),
                                word(entry, "needed"), word(entry, "advice")});
  }
  return machine;
}

}  // namespace slackline::cli::doctor

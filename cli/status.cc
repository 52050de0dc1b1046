#include "cli/status.h"

#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/scheduler_client.h"
#include "cli/train.h"
#include "common/address.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kLastEvents = 5;

std::string LastEvents(const fs::path& run) {
  std::ifstream in(run / "events.log");
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(absl::StrCat("  ", line, "\n"));
    if (lines.size() > kLastEvents) lines.pop_front();
  }
  return absl::StrJoin(lines, "");
}

// Of report.json, which only the final evaluation writes.
std::optional<double> TestAccuracy(const fs::path& run) {
  std::ifstream in(run / "report.json");
  const nlohmann::json report = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) return std::nullopt;
  const auto accuracy = report.find("accuracy");
  if (accuracy == report.end() || !accuracy->is_number()) return std::nullopt;
  return accuracy->get<double>();
}

// For a run that no scheduler answers for; `no_answer` says where it was looked for.
int ShowEnd(const fs::path& run, const std::string& no_answer) {
  const std::string events = LastEvents(run);
  const std::optional<double> accuracy = TestAccuracy(run);
  if (events.empty() && !accuracy) {
    std::fprintf(stderr, "slackline: %s; is %s a run folder?\n", no_answer.c_str(), run.c_str());
    return kExitFailed;
  }
  std::printf("The run has ended: %s.\n%s", no_answer.c_str(), events.c_str());
  if (accuracy) {
    std::printf("test accuracy %.2f %%\n", 100 * *accuracy);
    return kExitDone;
  }
  std::printf("There is no report.json: the run did not come to its end.\n");
  return kExitFailed;
}

std::string NoAnswer(const std::string& address) { return absl::StrCat("no scheduler answers at ", address); }

// True if a scheduler has answered.
bool ShowLive(const std::string& address) {
  const absl::StatusOr<wire::GetStatusReply> status = SchedulerClient(address).GetStatus(kPatience);
  if (status.ok()) std::printf("%s", RenderStatus(*status).c_str());
  return status.ok();
}

}  // namespace

int Status(const std::string& target) {
  std::error_code error;
  if (fs::is_directory(target, error)) {
    const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(target);
    if (!address.ok()) return ShowEnd(target, std::string(address.status().message()));
    return ShowLive(*address) ? kExitDone : ShowEnd(target, NoAnswer(*address));
  }
  if (!AddressMistake(target).empty()) {
    std::fprintf(stderr, "slackline: found '%s'; allowed is a run folder or HOST:PORT\n", target.c_str());
    return kExitWrongUse;
  }
  if (ShowLive(target)) return kExitDone;
  std::fprintf(stderr, "slackline: %s (the run has ended?)\n", NoAnswer(target).c_str());
  return kExitFailed;
}

}  // namespace slackline::cli

#include "cli/status.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include <nlohmann/json.hpp>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/complain.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/scheduler_client.h"
#include "cli/train.h"
#include "common/address.h"
#include "common/job_file.h"
#include "common/security/security.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kLastEvents = 5;
// Each event stands behind its time.
constexpr size_t kEventTimeLength = sizeof("2025-01-31 12:00:00.000 ") - 1;

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

// A run that was not ended keeps its scheduler's state, to go on from. One that has failed does, too, and says so.
bool MayGoOn(const fs::path& run) {
  std::error_code error;
  if (!fs::is_directory(run / "scheduler", error)) return false;
  bool ended = false;
  std::ifstream in(run / "events.log");
  for (std::string line; std::getline(in, line);) {
    const absl::string_view event = absl::string_view(line).substr(std::min(line.size(), kEventTimeLength));
    if (absl::StartsWith(event, "the job is ")) ended = true;
    if (absl::StartsWith(event, "the scheduler goes on ") || absl::StartsWith(event, "goes on from checkpoint ")) {
      ended = false;
    }
  }
  return !ended;
}

int ShowAway(const fs::path& run, const std::string& no_answer) {
  std::printf(
      "%s; the run is not over: `slackline train` starts the scheduler again by itself; started by hand, start it "
      "again with --resume; when all is gone, `slackline resume %s`.\n%s",
      no_answer.c_str(), run.c_str(), LastEvents(run).c_str());
  return kExitFailed;
}

// For a run that no scheduler answers for; `no_answer` says where it was looked for.
int ShowEnd(const fs::path& run, const std::string& no_answer) {
  if (MayGoOn(run)) return ShowAway(run, no_answer);
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

// Somebody is there, who does not let us in, or whom we do not trust.
bool Refused(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) || rpc::IsMistrust(status);
}

// OK if a scheduler has answered.
absl::Status ShowLive(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection) {
  const absl::StatusOr<wire::GetStatusReply> status = SchedulerClient(address, protection).GetStatus(kPatience);
  if (status.ok()) std::printf("%s", RenderStatus(*status).c_str());
  return status.status();
}

int Complain(const std::string& message, int exit_code) {
  std::fprintf(stderr, "slackline: %s\n", message.c_str());
  return exit_code;
}

int ShowRun(const fs::path& run, const std::shared_ptr<const rpc::Protection>& protection) {
  const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(run);
  if (!address.ok()) return ShowEnd(run, std::string(address.status().message()));
  const absl::Status shown = ShowLive(*address, protection);
  if (Refused(shown)) return Complain(std::string(shown.message()), kExitFailed);
  return shown.ok() ? kExitDone : ShowEnd(run, NoAnswer(*address));
}

}  // namespace

absl::StatusOr<std::string> FindAddress(const std::string& target) {
  std::error_code error;
  if (fs::is_directory(target, error)) {
    absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(target);
    if (address.ok()) return address;
    return absl::Status(address.status().code(),
                        absl::StrCat(address.status().message(), "; allowed is the folder of a run, or HOST:PORT"));
  }
  if (AddressMistake(target).empty()) return target;
  return absl::InvalidArgumentError(absl::StrCat("found '", target, "'; allowed is a run folder or HOST:PORT"));
}

absl::StatusOr<std::shared_ptr<const rpc::Protection>> FindProtection(const StatusOptions& options) {
  std::string job_file = options.job_file;
  std::error_code error;
  const fs::path of_run = fs::path(options.target) / "job.yaml";
  if (job_file.empty() && fs::is_regular_file(of_run, error)) job_file = of_run;
  if (job_file.empty()) return nullptr;
  const absl::StatusOr<job::Job> job = ReadJobFile(job_file);
  if (!job.ok()) return job.status();
  const absl::StatusOr<security::Security> security = security::Security::Open(*job, security::Role::kOperator);
  if (!security.ok()) return security.status();
  return security->To(security::Role::kScheduler);
}

int Status(const StatusOptions& options) {
  const auto protection = FindProtection(options);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  std::error_code error;
  if (fs::is_directory(options.target, error)) return ShowRun(options.target, *protection);
  if (!AddressMistake(options.target).empty()) {
    return Complain(absl::StrCat("found '", options.target, "'; allowed is a run folder or HOST:PORT"), kExitWrongUse);
  }
  const absl::Status shown = ShowLive(options.target, *protection);
  if (shown.ok()) return kExitDone;
  if (Refused(shown)) return Complain(std::string(shown.message()), kExitFailed);
  // Somebody was there.
  const bool closed = *protection == nullptr && absl::StrContains(shown.message(), "Socket closed");
  const char* const hint = closed ? ", or it wants certificates, which --job names" : "";
  return Complain(absl::StrCat(NoAnswer(options.target), " (the run has ended", hint, "?)"), kExitFailed);
}

}  // namespace slackline::cli

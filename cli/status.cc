#include "cli/status.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/complain.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/scheduler_client.h"
#include "cli/signals.h"
#include "cli/status_view.h"
#include "cli/train.h"
#include "common/address.h"
#include "common/job_file.h"
#include "common/security/security.h"
#include "scheduler/message_json.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Seconds(5);
// Of --watch: between two looks, and how long a scheduler that has answered may be away.
constexpr absl::Duration kWatchEvery = absl::Seconds(1);
constexpr absl::Duration kAwayMax = absl::Seconds(60);
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

std::string Render(const wire::GetStatusReply& status) {
  return HarmlessLines(RenderStatus(status)) + (status.has_full() ? RenderDetails(status.full(), status.page()) : "");
}

// OK if a scheduler has answered.
absl::Status ShowLive(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection, bool json) {
  const absl::StatusOr<wire::GetStatusReply> status =
      SchedulerClient(address, protection).GetStatus(kPatience, /*full=*/true);
  if (!status.ok()) return status.status();
  if (json && !status->has_full()) return absl::UnimplementedError("the scheduler is of an earlier version");
  std::printf("%s", json ? (scheduler::ToJson(status->full()) + "\n").c_str() : Render(*status).c_str());
  return absl::OkStatus();
}

int Complain(const std::string& message, int exit_code) {
  std::fprintf(stderr, "slackline: %s\n", message.c_str());
  return exit_code;
}

int ShowRun(const fs::path& run, const std::shared_ptr<const rpc::Protection>& protection, bool json) {
  const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(run);
  if (!address.ok()) {
    const std::string why(address.status().message());
    return json ? Complain(why, kExitFailed) : ShowEnd(run, why);
  }
  const absl::Status shown = ShowLive(*address, protection, json);
  if (shown.ok()) return kExitDone;
  if (Refused(shown) || absl::IsUnimplemented(shown)) return Complain(std::string(shown.message()), kExitFailed);
  return json ? Complain(NoAnswer(*address), kExitFailed) : ShowEnd(run, NoAnswer(*address));
}

// Draws over what was drawn before, as much as there is room for.
void Redraw(const std::string& text) {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::string out = "\x1b[H";
  for (size_t i = 0; i < lines.size() && (!known || i + 1 < size.ws_row); ++i) {
    absl::StrAppend(&out, known ? lines[i].substr(0, size.ws_col) : lines[i], "\x1b[K\n");
  }
  std::printf("%s\x1b[J", out.c_str());
  std::fflush(stdout);
}

// Until the job has ended, the user has enough, or nobody has answered for long.
int Watch(const StatusOptions& options, const std::shared_ptr<const rpc::Protection>& protection,
          SignalQueue& signals) {
  const bool tty = ::isatty(STDOUT_FILENO) != 0;
  Progress lines(stdout, Progress::Kind::kLines, /*quiet=*/false);
  std::error_code error;
  const bool folder = fs::is_directory(options.target, error);
  absl::Time answered = absl::InfinitePast();
  if (tty) std::printf("\x1b[2J");
  while (true) {
    // A scheduler that comes back may have another address.
    const absl::StatusOr<std::string> address = FindAddress(options.target);
    const absl::StatusOr<wire::GetStatusReply> status =
        address.ok() ? SchedulerClient(*address, protection).GetStatus(kPatience, /*full=*/true) : address.status();
    if (status.ok()) {
      answered = absl::Now();
      tty ? Redraw(Render(*status)) : lines.Show(*status, answered);
      if (HasEnded(*status)) return status->state() == wire::JOB_FAILED ? kExitFailed : kExitDone;
    } else if (Refused(status.status())) {
      return Complain(std::string(status.status().message()), kExitFailed);
    } else if ((folder && !MayGoOn(options.target)) || absl::Now() - answered > kAwayMax) {
      const std::string why = address.ok() ? NoAnswer(*address) : std::string(address.status().message());
      return folder ? ShowEnd(options.target, why) : Complain(why, kExitFailed);
    } else {
      lines.Say(absl::StrCat(NoAnswer(*address), " for ", RenderTime(absl::ToDoubleSeconds(absl::Now() - answered))));
    }
    const std::optional<int> signal = signals.Wait(kWatchEvery);
    if (signal && IsStop(*signal)) return kExitDone;
  }
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
  // Before gRPC has threads.
  std::optional<SignalQueue> signals;
  if (options.watch) signals.emplace();
  const auto protection = FindProtection(options);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  std::error_code error;
  const bool folder = fs::is_directory(options.target, error);
  if (folder && !options.watch) return ShowRun(options.target, *protection, options.json);
  if (!folder && !AddressMistake(options.target).empty()) {
    return Complain(absl::StrCat("found '", options.target, "'; allowed is a run folder or HOST:PORT"), kExitWrongUse);
  }
  if (options.watch) return Watch(options, *protection, *signals);
  const absl::Status shown = ShowLive(options.target, *protection, options.json);
  if (shown.ok()) return kExitDone;
  if (Refused(shown) || absl::IsUnimplemented(shown)) return Complain(std::string(shown.message()), kExitFailed);
  // Somebody was there.
  const bool closed = *protection == nullptr && absl::StrContains(shown.message(), "Socket closed");
  const char* const hint = closed ? ", or it wants certificates, which --job names" : "";
  return Complain(absl::StrCat(NoAnswer(options.target), " (the run has ended", hint, "?)"), kExitFailed);
}

}  // namespace slackline::cli

#include "cli/commands/status.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/complain.h"
#include "cli/base/signals.h"
#include "cli/commands/shared_options.h"
#include "cli/run/not_started.h"
#include "cli/run/page_status.h"
#include "cli/run/progress.h"
#include "cli/run/report.h"
#include "cli/run/run_end.h"
#include "cli/run/run_folder.h"
#include "cli/run/scheduler_client.h"
#include "cli/run/status_view.h"
#include "common/base/address.h"
#include "common/job/job_file.h"
#include "common/security/security.h"
#include "common/text/help.h"
#include "common/time/clock.h"
#include "scheduler/base/message_json.h"

namespace slackline::cli {
namespace {

const HelpText kStatusHelp = {.example = "slackline status runs/first --watch",
                              .most_used = "--watch --json --job",
                              .text = "Exit codes: slackline help status.",
                              .examples =
                                  "slackline status runs/fashion-mnist-mlp-20250131-120000\n"
                                  "slackline status runs/first --json | jq .workers\n"
                                  "slackline status 127.0.0.1:34567 --watch\n"
                                  "slackline status node1:7000 --job job.yaml\n"
                                  "slackline status http://127.0.0.1:8080/ --watch"};

namespace fs = std::filesystem;

constexpr absl::Duration kPatience = absl::Seconds(5);
// Where no scheduler has answered, and it is only a guess.
constexpr absl::Duration kPagePatience = absl::Seconds(2);
// Of --watch: between two looks, and how long a scheduler that has answered may be away.
constexpr absl::Duration kWatchEvery = absl::Seconds(1);
constexpr absl::Duration kAwayMax = absl::Seconds(60);
// The same for a run that SLURM has not started yet: its queue serves many.
constexpr absl::Duration kQueueEvery = absl::Seconds(30);

int EndWith(const std::string& message, int exit_code) {
  std::fprintf(stderr, "slackline: %s\n", message.c_str());
  return exit_code;
}

// For a run that no scheduler answers for; `no_answer` says where it was looked for.
int ShowEnd(const fs::path& run, const std::string& no_answer, bool json) {
  const absl::StatusOr<wire::JobStatus> end = ReadEnd(run);
  if (!end.ok()) return EndWith(std::string(end.status().message()), kExitWrongUse);
  if (json) {
    std::printf("%s\n", scheduler::ToJson(*end).c_str());
  } else {
    if (end->state() == kAway || end->state() == kLost) std::printf("%s\n", no_answer.c_str());
    std::printf("%s", RenderEnd(*end).c_str());
  }
  return ExitCodeOf(end->state());
}

std::string NoAnswer(const std::string& address) { return absl::StrCat("no scheduler answers at ", address); }

// Somebody is there, who does not let us in, or whom we do not trust.
bool Refused(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) || rpc::IsMistrust(status);
}

std::string Render(const wire::GetStatusReply& status) {
  return PrintableLines(RenderStatus(status)) + (status.has_full() ? RenderDetails(status.full(), status.page()) : "");
}

int ExitCodeOfLive(const wire::GetStatusReply& status) {
  return status.state() == wire::JOB_FAILED || status.state() == wire::JOB_STOPPED ? kExitFailed : kExitDone;
}

struct Answer {
  wire::GetStatusReply status;
  std::string json;
};

// The status page, where one is named.
absl::StatusOr<Answer> AskThePage(const std::string& address, absl::Duration patience) {
  absl::StatusOr<PageStatus> page = AskPage(address, patience);
  if (!page.ok()) return page.status();
  return Answer{std::move(page->reply), std::move(page->json)};
}

absl::StatusOr<Answer> AskTheScheduler(const std::string& address,
                                       const std::shared_ptr<const rpc::Protection>& protection) {
  absl::StatusOr<wire::GetStatusReply> status =
      SchedulerClient(address, protection).GetStatus(kPatience, /*full=*/true);
  if (!status.ok()) return status.status();
  std::string json = status->has_full() ? scheduler::ToJson(status->full()) : "";
  return Answer{*std::move(status), std::move(json)};
}

// Of a run that was named by an address of its own: it may be that of the page, too.
absl::StatusOr<Answer> Ask(const std::string& target, const std::shared_ptr<const rpc::Protection>& protection) {
  if (const std::string page = PageAddress(target); !page.empty()) return AskThePage(page, kPatience);
  absl::StatusOr<Answer> answer = AskTheScheduler(target, protection);
  if (answer.ok() || Refused(answer.status())) return answer;
  absl::StatusOr<Answer> page = AskThePage(target, kPagePatience);
  return page.ok() ? page : answer;
}

// The exit code, if somebody has answered.
absl::StatusOr<int> ShowLive(const absl::StatusOr<Answer>& answer, bool json) {
  if (!answer.ok()) return answer.status();
  if (json && answer->json.empty()) return absl::UnimplementedError("the scheduler is of an earlier version");
  std::printf("%s", json ? (answer->json + "\n").c_str() : Render(answer->status).c_str());
  return ExitCodeOfLive(answer->status);
}

int ShowRun(const fs::path& run, const std::shared_ptr<const rpc::Protection>& protection, bool json) {
  const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(run);
  if (!address.ok()) return ShowEnd(run, std::string(address.status().message()), json);
  absl::StatusOr<Answer> answer = AskTheScheduler(*address, protection);
  const std::vector<ProcessRecord> processes =
      answer.ok() ? NotStarted(run, answer->status) : std::vector<ProcessRecord>();
  if (answer.ok() && !answer->json.empty()) answer->json = WithNotStarted(answer->json, run, processes);
  const absl::StatusOr<int> shown = ShowLive(answer, json);
  if (shown.ok() && !json) std::printf("%s", RenderNotStarted(run, processes).c_str());
  if (shown.ok()) return *shown;
  if (Refused(shown.status()) || absl::IsUnimplemented(shown.status())) {
    return EndWith(std::string(shown.status().message()), kExitFailed);
  }
  return ShowEnd(run, NoAnswer(*address), json);
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
  Output out(STDOUT_FILENO);
  ProgressDisplay lines(out, ProgressDisplay::Kind::kLines, /*quiet=*/false);
  std::error_code error;
  const bool folder = fs::is_directory(options.target, error);
  absl::Time answered = absl::InfinitePast();
  if (tty) std::printf("\x1b[2J");
  while (true) {
    // A scheduler that comes back may have another address.
    const absl::StatusOr<std::string> address = folder ? FindAddress(options.target) : options.target;
    const absl::StatusOr<Answer> answer = !address.ok() ? address.status()
                                          : folder      ? AskTheScheduler(*address, protection)
                                                        : Ask(*address, protection);
    const absl::Status& status = answer.status();
    bool pending = false;
    if (status.ok()) {
      answered = SteadyTime().Now();
      tty ? Redraw(Render(answer->status)) : lines.Show(answer->status, answered);
      if (HasEnded(answer->status)) return ExitCodeOfLive(answer->status);
    } else if (Refused(status)) {
      return EndWith(std::string(status.message()), kExitFailed);
    } else {
      const std::string why = address.ok() ? NoAnswer(*address) : std::string(address.status().message());
      const bool long_ago = SteadyTime().Now() - answered > kAwayMax;
      const absl::StatusOr<wire::JobStatus> end = folder ? ReadEnd(options.target) : absl::NotFoundError("no folder");
      pending = end.ok() && end->state() == kPending;
      if (folder && !pending && (long_ago || !end.ok() || end->state() != kAway)) {
        return ShowEnd(options.target, why, /*json=*/false);
      }
      if (long_ago && !pending) return EndWith(why, kExitFailed);
      lines.Say(pending ? end->reason()
                        : absl::StrCat(why, " for ", RenderTime(absl::ToDoubleSeconds(SteadyTime().Now() - answered))));
      // Whoever is started is given time to answer.
      if (pending) answered = SteadyTime().Now();
    }
    const std::optional<int> signal = signals.Wait(pending ? kQueueEvery : kWatchEvery);
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
  return absl::InvalidArgumentError(
      absl::StrCat("found '", target, "'; allowed is a run folder, the number of a job, or HOST:PORT"));
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

namespace {

// Prints the status, and returns the exit code: kExitDone if the run continues or is done.
int Status(const StatusOptions& options) {
  // Before gRPC has threads.
  std::optional<SignalQueue> signals;
  if (options.watch) signals.emplace();
  const auto protection = FindProtection(options);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  std::error_code error;
  const bool folder = fs::is_directory(options.target, error);
  if (folder && !options.watch) return ShowRun(options.target, *protection, options.json);
  if (!folder && !AddressMistake(options.target).empty() && PageAddress(options.target).empty()) {
    return EndWith(
        absl::StrCat("found '", options.target,
                     "'; allowed is a run folder, HOST:PORT, or the address of a status page (http:// and HOST:PORT)"),
        kExitWrongUse);
  }
  if (options.watch) return Watch(options, *protection, *signals);
  const absl::StatusOr<int> answer = ShowLive(Ask(options.target, *protection), options.json);
  if (answer.ok()) return *answer;
  const absl::Status& shown = answer.status();
  if (Refused(shown) || absl::IsUnimplemented(shown)) return EndWith(std::string(shown.message()), kExitFailed);
  // Somebody was there.
  const bool closed = *protection == nullptr && absl::StrContains(shown.message(), "Socket closed");
  const char* const hint = closed ? ", or it wants certificates, which --job names" : "";
  return EndWith(absl::StrCat(NoAnswer(options.target), " (the run has ended", hint, "?)"), kExitFailed);
}

}  // namespace

AddedCommand AddStatus(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "Show the progress, workers and servers of a run");
  TakeJobNumbers(*AddRun(*command, *options,
                         "Run folder, number of a job, HOST:PORT of the scheduler, or address of the status page"));
  auto* watch = command->add_flag("--watch", options->watch, "Show the status every second until the run ends");
  command->add_flag("--json", options->json, "Print JSON, with the fields of docs/status-fields.md")->excludes(watch);
  SetHelp(*command, kStatusHelp);
  return {command, [options] { return Status(*options); }};
}

}  // namespace slackline::cli

#include "cli/slurm/slurm_programs.h"

#include <signal.h>

#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/time/clock.h"

namespace slackline::cli::slurm {
namespace {

constexpr absl::Duration kAskEvery = absl::Seconds(30);
constexpr absl::Duration kAnswerMax = absl::Seconds(20);
constexpr absl::Duration kRequeueMax = absl::Seconds(60);

// The first argument is looked up in PATH.
absl::StatusOr<Process> Start(std::vector<std::string> command, const std::filesystem::path& log) {
  std::error_code error;
  std::filesystem::remove(log, error);
  const std::string name = command.front();
  command.insert(command.begin(), "/usr/bin/env");
  return Process::Start({name, std::move(command), log});
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path);
  return std::string(absl::StripAsciiWhitespace(std::string(std::istreambuf_iterator<char>(in), {})));
}

std::optional<absl::Duration> ParseOneTime(absl::string_view text) {
  absl::string_view rest = text;
  uint32_t days = 0;
  if (const size_t dash = rest.find('-'); dash != absl::string_view::npos) {
    if (!absl::SimpleAtoi(rest.substr(0, dash), &days)) return std::nullopt;
    rest = rest.substr(dash + 1);
  }
  absl::Duration left;
  for (const absl::string_view part : absl::StrSplit(rest, ':')) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) return std::nullopt;
    left = 60 * left + absl::Seconds(number);
  }
  return left + days * absl::Hours(24);
}

}  // namespace

absl::StatusOr<std::string> Ask(const std::vector<std::string>& command, const std::filesystem::path& log,
                                absl::Duration timeout) {
  absl::StatusOr<Process> process = Start(command, log);
  if (!process.ok()) return process.status();
  const std::optional<ProcessEnd> end = process->WaitFor(timeout);
  if (!end) {
    return absl::DeadlineExceededError(
        absl::StrCat(command.front(), " did not answer within ", absl::FormatDuration(timeout)));
  }
  if (end->ok()) return ReadText(log);
  return absl::UnavailableError(absl::StrCat(command.front(), ": ", end->Describe(), ": ", process->LastWords()));
}

std::optional<absl::Duration> ParseTimeLeft(const std::string& text) {
  std::optional<absl::Duration> smallest;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::optional<absl::Duration> left = ParseOneTime(absl::StripAsciiWhitespace(line));
    if (left && (!smallest || *left < *smallest)) smallest = left;
  }
  return smallest;
}

std::optional<uint32_t> ParseRestarts(const std::string& text) {
  constexpr char kName[] = "Restarts=";
  const size_t at = text.find(kName);
  if (at == std::string::npos) return std::nullopt;
  uint32_t restarts = 0;
  const absl::string_view rest = absl::string_view(text).substr(at + sizeof(kName) - 1);
  return absl::SimpleAtoi(rest.substr(0, rest.find_first_of(" \n")), &restarts) ? std::optional(restarts)
                                                                                : std::nullopt;
}

absl::Time TimeLimit::End() {
  const absl::Time now = SteadyTime().Now();
  if (question_) {
    const std::optional<ProcessEnd> end = question_->Poll();
    if (end) {
      const std::optional<absl::Duration> left = ParseTimeLeft(ReadText(log_));
      // Where nobody answers, the last answer stays.
      if (end->ok()) end_ = left ? asked_ + *left : absl::InfiniteFuture();
      question_.reset();
    } else if (now > asked_ + kAnswerMax) {
      question_.reset();
    }
  } else if (now >= due_) {
    asked_ = now;
    due_ = now + kAskEvery;
    absl::StatusOr<Process> process =
        Start({"squeue", "--noheader", absl::StrCat("--jobs=", job_), "--format=%L"}, log_);
    if (process.ok()) question_.emplace(*std::move(process));
  }
  return end_;
}

absl::Status Requeue(const std::string& job, const std::filesystem::path& log) {
  return Ask({"scontrol", "requeue", job}, log, kRequeueMax).status();
}

absl::Status RequeueOnce(const std::string& job, uint32_t restarts, const std::filesystem::path& log) {
  const absl::StatusOr<std::string> known = Ask({"scontrol", "show", "job", "--oneliner", job}, log, kRequeueMax);
  if (!known.ok()) return known.status();
  const std::optional<uint32_t> now = ParseRestarts(*known);
  if (now != restarts || !absl::StrContains(*known, "JobState=RUNNING")) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job, " is not as it was: it was requeued, or has ended"));
  }
  return Requeue(job, log);
}

}  // namespace slackline::cli::slurm

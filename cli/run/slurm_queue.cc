#include "cli/run/slurm_queue.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/base/process.h"
#include "cli/base/replace_file.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kQueueAnswerMax = absl::Seconds(10);

fs::path NumberFile(const fs::path& run) { return run / "submit" / "job-id"; }

// Returns the output of squeue with these options. It goes through a file: whoever asks may not write into the run
// folder.
//   kNotFound     squeue does not know the job
//   kUnavailable  as AskSlurm()
absl::StatusOr<std::string> RunSqueue(const std::vector<std::string>& options) {
  std::string file = fs::temp_directory_path() / "slackline-queue-XXXXXX";
  const int descriptor = ::mkstemp(file.data());
  if (descriptor < 0) return absl::UnavailableError(absl::StrCat("cannot make ", file));
  ::close(descriptor);
  std::vector<std::string> command = {"/usr/bin/env", "squeue", "--noheader"};
  command.insert(command.end(), options.begin(), options.end());
  absl::StatusOr<Process> process = Process::Start({"squeue", command, file});
  std::optional<ProcessEnd> end;
  std::string answer, words;
  if (process.ok()) {
    end = process->WaitFor(kQueueAnswerMax);
    std::ifstream in(file);
    answer.assign(std::istreambuf_iterator<char>(in), {});
    words = process->LastWords();
  }
  std::error_code error;
  fs::remove(file, error);
  if (!process.ok()) return absl::UnavailableError(process.status().message());
  if (!end) {
    return absl::UnavailableError(
        absl::StrCat("squeue has not answered within ", absl::FormatDuration(kQueueAnswerMax)));
  }
  if (end->ok()) return answer;
  if (absl::StrContains(words, "Invalid job id")) return absl::NotFoundError("SLURM does not know the job");
  return absl::UnavailableError(absl::StrCat("squeue: ", end->Describe(), ": ", words));
}

// `more`: further options.
absl::StatusOr<QueuedJob> AskQueue(const std::string& number, const std::vector<std::string>& more) {
  std::vector<std::string> options = {absl::StrCat("--jobs=", number), "--format=%i|%T|%r|%S|%N"};
  options.insert(options.end(), more.begin(), more.end());
  const absl::StatusOr<std::string> answer = RunSqueue(options);
  if (!answer.ok()) return answer.status();
  if (answer->empty()) return absl::NotFoundError("SLURM does not know the job");
  const std::string line = answer->substr(0, answer->find('\n'));
  if (std::optional<QueuedJob> job = ParseQueued(line)) return *std::move(job);
  return absl::UnavailableError(absl::StrCat("squeue: found '", line, "', which is no line of a job"));
}

}  // namespace

std::string QueuedJob::Describe() const {
  std::string text = absl::StrCat("SLURM job ", number, " is ", state);
  if (pending() && !reason.empty()) absl::StrAppend(&text, " (", reason, ")");
  if (pending() && !start.empty()) absl::StrAppend(&text, ", expected to start at ", start);
  if (!nodes.empty()) absl::StrAppend(&text, " on ", nodes);
  return text;
}

bool QueuedJob::over() const {
  static constexpr absl::string_view kOver[] = {"BOOT_FAIL", "CANCELLED",     "COMPLETED", "DEADLINE", "FAILED",
                                                "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",  "TIMEOUT"};
  return std::find(std::begin(kOver), std::end(kOver), state) != std::end(kOver);
}

std::optional<QueuedJob> ParseQueued(const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(line), '|');
  if (parts.size() != 5 || parts[0].empty() || parts[1].empty()) return std::nullopt;
  const auto known = [](const std::string& text) { return text == "N/A" || text == "None" ? std::string() : text; };
  return QueuedJob{parts[0], parts[1], known(parts[2]), known(parts[3]), parts[4]};
}

absl::Status NoteSlurmJob(const fs::path& run, const std::string& number) {
  // With several clusters "12;cluster".
  return ReplaceFile(NumberFile(run), number.substr(0, number.find(';')) + "\n");
}

void ForgetSlurmJob(const fs::path& run) {
  std::error_code error;
  fs::remove(NumberFile(run), error);
}

fs::path BatchScriptOf(const fs::path& run) { return run / "submit" / "slackline.sbatch"; }

absl::StatusOr<std::optional<std::string>> FindByScript(const fs::path& run) {
  const absl::StatusOr<std::string> answer = RunSqueue({"--me", "--format=%i|%o"});
  if (!answer.ok()) return answer.status();
  for (const absl::string_view line : absl::StrSplit(*answer, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('|', 1));
    if (parts.size() == 2 && absl::StripAsciiWhitespace(parts[1]) == BatchScriptOf(run).string()) {
      return std::optional(parts[0].substr(0, parts[0].find_first_not_of("0123456789")));
    }
  }
  return std::optional<std::string>();
}

absl::Status CheckFollowed(const std::vector<std::string>& options) {
  static constexpr absl::string_view kLong[] = {"--array", "--wait",  "--test-only", "--wrap",   "--help",
                                                "--usage", "--error", "--version",   "--output", "--open-mode"};
  static constexpr absl::string_view kShort[] = {"-a", "-W", "-h", "-V", "-o", "-e"};
  for (const std::string& option : options) {
    const absl::string_view name = absl::string_view(option).substr(0, option.find('='));
    const bool is_long = std::find(std::begin(kLong), std::end(kLong), name) != std::end(kLong);
    const bool is_short = std::find(std::begin(kShort), std::end(kShort), name.substr(0, 2)) != std::end(kShort);
    if (!is_long && !is_short) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("found ", name, " for sbatch; allowed are options of one job that runs now, with its output in ",
                     "the run folder"));
  }
  return absl::OkStatus();
}

std::optional<std::string> SlurmJobOf(const fs::path& run) {
  std::ifstream in(NumberFile(run));
  std::string number;
  if (!std::getline(in, number) || number.empty()) return std::nullopt;
  return std::all_of(number.begin(), number.end(), absl::ascii_isdigit) ? std::optional(number) : std::nullopt;
}

absl::StatusOr<QueuedJob> AskSlurm(const std::string& number) { return AskQueue(number, {"--states=all"}); }

std::optional<QueuedJob> FindInQueue(const fs::path& run) {
  const std::optional<std::string> number = SlurmJobOf(run);
  if (!number) return std::nullopt;
  absl::StatusOr<QueuedJob> job = AskQueue(*number, {});
  return job.ok() ? std::optional(*std::move(job)) : std::nullopt;
}

}  // namespace slackline::cli

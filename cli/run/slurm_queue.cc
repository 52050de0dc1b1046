#include "cli/run/slurm_queue.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/process.h"
#include "cli/base/replace_file.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kQueueAnswerMax = absl::Seconds(10);

fs::path NumberFile(const fs::path& run) { return run / "submit" / "job-id"; }

// What squeue says goes through a file: whoever asks may not write into the run folder.
std::string AskQueue(const std::string& number) {
  std::string file = fs::temp_directory_path() / "slackline-queue-XXXXXX";
  const int descriptor = ::mkstemp(file.data());
  if (descriptor < 0) return "";
  ::close(descriptor);
  std::string answer;
  absl::StatusOr<Process> process = Process::Start(
      {"squeue",
       {"/usr/bin/env", "squeue", "--noheader", absl::StrCat("--jobs=", number), "--format=%i|%T|%r|%S|%N"},
       file});
  if (process.ok()) {
    const std::optional<ProcessEnd> end = process->WaitFor(kQueueAnswerMax);
    std::ifstream in(file);
    if (end && end->ok()) std::getline(in, answer);
  }
  std::error_code error;
  fs::remove(file, error);
  return answer;
}

}  // namespace

std::string QueuedJob::Describe() const {
  std::string text = absl::StrCat("SLURM job ", number, " is ", state);
  if (pending() && !reason.empty()) absl::StrAppend(&text, " (", reason, ")");
  if (pending() && !start.empty()) absl::StrAppend(&text, ", expected to start at ", start);
  if (!nodes.empty()) absl::StrAppend(&text, " on ", nodes);
  return text;
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

std::optional<QueuedJob> FindInQueue(const fs::path& run) {
  std::ifstream in(NumberFile(run));
  std::string number;
  if (!std::getline(in, number) || number.empty()) return std::nullopt;
  for (const char c : number) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
  }
  return ParseQueued(AskQueue(number));
}

}  // namespace slackline::cli

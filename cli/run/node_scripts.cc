#include "cli/run/node_scripts.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/base/process.h"
#include "cli/base/signals.h"
#include "cli/run/seat.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

// Time for the other scripts to end after one has failed. They notice it, name it, and leave the job.
constexpr absl::Duration kOthersMax = absl::Seconds(20);
// Time between two looks at the scripts. Their ends and signals wake us at once.
constexpr absl::Duration kLook = absl::Seconds(1);
// Standard output of this process: the worker's log, which all scripts write.
constexpr char kOwnOutput[] = "/proc/self/fd/1";
// Lines of the log in which the exception of a script is looked for.
constexpr size_t kLastLines = 100;

absl::StatusOr<std::vector<Process>> StartScripts(uint32_t scripts, const std::vector<std::string>& command,
                                                  const std::string& folder) {
  const Machine machine = ThisMachine();
  std::vector<Process> processes;
  for (uint32_t seat = 0; seat < scripts; ++seat) {
    std::vector<std::string> words = {"/usr/bin/env", absl::StrCat("SLACKLINE_NODE_GROUP=", folder)};
    for (std::string& one : EnvironmentOfSeat(machine, seat, scripts)) words.push_back(std::move(one));
    words.insert(words.end(), command.begin(), command.end());
    absl::StatusOr<Process> process =
        Process::Start({absl::StrCat("process ", seat, " of the node"), std::move(words), kOwnOutput});
    if (!process.ok()) return process.status();
    processes.push_back(*std::move(process));
  }
  return processes;
}

// Returns how a script has ended, with the last exception in the log: the others have not noticed this end yet.
std::string HowScriptEnded(const Process& process, const ProcessEnd& end) {
  std::string why = absl::StrCat(process.name(), " (pid ", process.pid(), "): ", end.Describe());
  std::error_code error;
  // A script that a signal has killed says nothing. A pipe cannot be read here.
  if (end.by_signal || !std::filesystem::is_regular_file(kOwnOutput, error)) return why;
  if (const std::string exception = LastException(process.LastWords(kLastLines)); !exception.empty()) {
    absl::StrAppend(&why, ": ", exception);
  }
  return why;
}

// Waits for the end of all. Returns how those that failed have ended, the first one first, without those that had to be
// killed because of them.
std::vector<std::string> WaitForScripts(std::vector<Process>& processes, SignalQueue& signals) {
  std::vector<std::string> failures;
  std::vector<bool> ended(processes.size(), false);
  absl::Time deadline = absl::InfiniteFuture();
  bool killed = false;
  while (true) {
    for (size_t i = 0; i < processes.size(); ++i) {
      const std::optional<ProcessEnd> end = processes[i].Poll();
      if (ended[i] || !end) continue;
      ended[i] = true;
      if (end->ok() || killed) continue;
      failures.push_back(HowScriptEnded(processes[i], *end));
      deadline = std::min(deadline, SteadyTime().Now() + kOthersMax);
    }
    if (std::all_of(ended.begin(), ended.end(), [](bool one) { return one; })) return failures;
    if (SteadyTime().Now() >= deadline) {
      killed = true;
      for (Process& process : processes) process.Signal(SIGKILL);
    }
    const std::optional<int> signal = signals.Wait(kLook);
    if (!signal || !IsStop(*signal)) continue;
    for (Process& process : processes) process.Signal(*signal);
  }
}

}  // namespace

std::string LastException(absl::string_view output) {
  absl::string_view exception;
  bool traced = false;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, "Traceback (most recent call last):")) {
      traced = true;
    } else if (traced && !line.empty() && line.front() != ' ') {
      exception = absl::StripAsciiWhitespace(line);
      traced = false;
    }
  }
  return std::string(exception);
}

int RunNodeScripts(uint32_t scripts, const std::vector<std::string>& command) {
  SignalQueue signals;
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "slackline-node-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot make the folder ", folder)));
  }
  absl::Status status;
  absl::StatusOr<std::vector<Process>> processes = StartScripts(scripts, command, folder);
  if (processes.ok()) {
    const std::vector<std::string> failures = WaitForScripts(*processes, signals);
    if (!failures.empty()) status = absl::AbortedError(absl::StrJoin(failures, "; "));
  } else {
    status = processes.status();
  }
  std::filesystem::remove_all(folder, error);
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace slackline::cli

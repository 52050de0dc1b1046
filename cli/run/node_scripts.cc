#include "cli/run/node_scripts.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/base/process.h"
#include "cli/base/signals.h"
#include "cli/run/node_log.h"
#include "cli/run/seat.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

// Time for the other scripts to end after one has failed. They notice it, name it, and leave the job.
constexpr absl::Duration kOthersMax = absl::Seconds(20);
// Time between two looks at the scripts. Their ends and signals wake us at once.
constexpr absl::Duration kLook = absl::Seconds(1);

absl::StatusOr<std::vector<Process>> StartScripts(uint32_t scripts, const std::vector<std::string>& command,
                                                  const std::string& folder, const NodeLog& log) {
  const Machine machine = ThisMachine();
  std::vector<Process> processes;
  for (uint32_t seat = 0; seat < scripts; ++seat) {
    std::vector<std::string> words = {"/usr/bin/env", absl::StrCat("SLACKLINE_NODE_GROUP=", folder)};
    for (std::string& one : EnvironmentOfSeat(machine, seat, scripts)) words.push_back(std::move(one));
    words.insert(words.end(), command.begin(), command.end());
    absl::StatusOr<Process> process =
        Process::Start({absl::StrCat("process ", seat, " of the node"), std::move(words), log.PipeOf(seat)});
    if (!process.ok()) return process.status();
    processes.push_back(*std::move(process));
  }
  return processes;
}

struct Failure {
  uint32_t rank = 0;
  std::string how;
};

// Waits for the end of all. Returns how those that failed have ended, the first one first, without those that had to be
// killed because of them.
std::vector<Failure> WaitForScripts(std::vector<Process>& processes, SignalQueue& signals) {
  std::vector<Failure> failures;
  std::vector<bool> ended(processes.size(), false);
  absl::Time deadline = absl::InfiniteFuture();
  bool killed = false;
  while (true) {
    for (size_t i = 0; i < processes.size(); ++i) {
      const std::optional<ProcessEnd> end = processes[i].Poll();
      if (ended[i] || !end) continue;
      ended[i] = true;
      if (end->ok() || killed) continue;
      failures.push_back({static_cast<uint32_t>(i),
                          absl::StrCat(processes[i].name(), " (pid ", processes[i].pid(), "): ", end->Describe())});
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

// Returns how scripts have failed, with their exceptions. Their lines are in the log then.
absl::Status RunIn(const std::string& folder, uint32_t scripts, const std::vector<std::string>& command,
                   SignalQueue& signals) {
  absl::StatusOr<std::unique_ptr<NodeLog>> log = NodeLog::Open(folder, scripts, STDOUT_FILENO);
  if (!log.ok()) return log.status();
  absl::StatusOr<std::vector<Process>> processes = StartScripts(scripts, command, folder, **log);
  if (!processes.ok()) return processes.status();
  const std::vector<Failure> failures = WaitForScripts(*processes, signals);
  (*log)->Close();
  if (failures.empty()) return absl::OkStatus();
  return absl::AbortedError(absl::StrJoin(failures, "; ", [&](std::string* out, const Failure& failure) {
    const std::string& exception = (*log)->ExceptionOf(failure.rank);
    absl::StrAppend(out, failure.how, exception.empty() ? "" : ": ", exception);
  }));
}

}  // namespace

int RunNodeScripts(uint32_t scripts, const std::vector<std::string>& command) {
  SignalQueue signals;
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "slackline-node-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot make the folder ", folder)));
  }
  const absl::Status status = RunIn(folder, scripts, command, signals);
  std::filesystem::remove_all(folder, error);
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace slackline::cli

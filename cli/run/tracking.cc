#include "cli/run/tracking.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/process.h"
#include "cli/base/python_package.h"
#include "cli/base/shell_word.h"
#include "cli/run/script.h"
#include "common/log/logging.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

constexpr char kTrackPackage[] = "slackline_track";
constexpr absl::Duration kTrackCheckMax = absl::Seconds(60);
constexpr absl::Duration kTrackMax = absl::Minutes(10);
constexpr absl::Duration kTrackPoll = absl::Milliseconds(200);

std::vector<std::string> TrackOptions(const job::Output& output) {
  std::vector<std::string> options;
  for (const int tracker : output.trackers()) {
    const std::string& name = job::Output::Tracker_Name(static_cast<job::Output::Tracker>(tracker));
    options.push_back(absl::StrCat("--", absl::AsciiStrToLower(name)));
  }
  return options;
}

// Starts `slackline track`, with its output in `log`.
absl::StatusOr<Process> StartTrack(const job::Job& job, const std::vector<std::string>& script,
                                   const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  absl::StatusOr<std::vector<std::string>> command = PackageCommand(kTrackPackage, InterpreterIn(script));
  if (!command.ok()) return command.status();
  // Looks the interpreter up in $PATH.
  command->insert(command->begin(), "/usr/bin/env");
  for (const std::vector<std::string>& more : {arguments, TrackOptions(job.output())}) {
    command->insert(command->end(), more.begin(), more.end());
  }
  return Process::Start({"track", *std::move(command), log});
}

}  // namespace

absl::Status CheckTrackers(const job::Job& job, const std::vector<std::string>& script) {
  if (job.output().trackers().empty()) return absl::OkStatus();
  std::string log = std::filesystem::temp_directory_path() / "slackline-track-XXXXXX";
  const int descriptor = ::mkstemp(log.data());
  if (descriptor < 0) return absl::UnavailableError(absl::StrCat("cannot make a file like ", log));
  ::close(descriptor);
  absl::Status status;
  absl::StatusOr<Process> process = StartTrack(job, script, {"--check"}, log);
  if (process.ok()) {
    const std::optional<ProcessEnd> end = process->WaitFor(kTrackCheckMax);
    if (!end || !end->ok()) {
      const std::string why =
          end ? process->LastWords() : absl::StrCat("no answer in ", absl::FormatDuration(kTrackCheckMax));
      status = absl::FailedPreconditionError(absl::StrCat("output.trackers: ", why));
    }
  } else {
    status = process.status();
  }
  std::error_code error;
  std::filesystem::remove(log, error);
  return status;
}

void TrackRun(const job::Job& job, const std::vector<std::string>& script, const RunFolder& folder,
              SignalQueue& signals) {
  const std::vector<std::string> options = TrackOptions(job.output());
  if (options.empty()) return;
  const std::string run = folder.path().string();
  std::string trouble;
  absl::StatusOr<Process> process = StartTrack(job, script, {run}, folder.log("track"));
  if (process.ok()) {
    log::Info("writing the figures for the trackers (Ctrl-C: not now)");
    const absl::Time deadline = SteadyTime().Now() + kTrackMax;
    while (!process->Poll() && trouble.empty()) {
      const std::optional<int> signal = signals.Wait(kTrackPoll);
      if (signal && IsStop(*signal)) trouble = "stopped by a signal";
      if (SteadyTime().Now() > deadline) trouble = absl::StrCat("no end within ", absl::FormatDuration(kTrackMax));
    }
    const std::optional<ProcessEnd> end = process->Poll();
    if (trouble.empty() && !end->ok()) trouble = absl::StrCat(end->Describe(), ": ", process->LastWords());
  } else {
    trouble = std::string(process.status().message());
  }
  if (!trouble.empty()) {
    log::Warning("the trackers do not have the run: ", trouble,
                 "; the run itself is not affected. To try again: slackline track ", ShellWord(run), " ",
                 absl::StrJoin(options, " "));
    return;
  }
  for (const absl::string_view line : absl::StrSplit(process->LastWords(options.size()), '\n')) log::Info(line);
}

}  // namespace slackline::cli

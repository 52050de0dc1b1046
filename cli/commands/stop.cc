#include "cli/commands/stop.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/commands/service.h"
#include "cli/commands/shared_options.h"
#include "cli/run/run_end.h"
#include "cli/run/scheduler_client.h"
#include "common/text/help.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

const HelpText kStopHelp = {
    .example = "slackline stop runs/first",
    .text =
        "The run ends as after Ctrl-C to `slackline train`: the scheduler makes a last checkpoint if the job says so "
        "(checkpoint.at_end), and all processes end. The command waits for that. `slackline resume` continues the run. "
        "A run that is being stopped is waited for, too. If the run is done or has failed, the exit code is 1.",
    .examples =
        "slackline stop 127.0.0.1:34567\n"
        "slackline stop runs/first --reason \"loss has not fallen since epoch 3\""};

constexpr absl::Duration kEndPoll = absl::Milliseconds(100);
constexpr absl::Duration kAskTimeout = absl::Seconds(5);
// A last checkpoint of a large model takes minutes.
constexpr absl::Duration kEndMax = absl::Minutes(15);
// A run that has just begun has no scheduler yet.
constexpr absl::Duration kBeginMax = absl::Seconds(20);
constexpr absl::Duration kFolderMax = absl::Seconds(60);
constexpr size_t kStopReasonMax = 500;

struct StopCommandOptions {
  StatusOptions run;
  std::string reason = "stopped by `slackline stop`";
};

// Waits until the scheduler, which has been told, is gone. A scheduler whose job is over ends once it has saved.
absl::Status AwaitGone(SchedulerClient& scheduler, const std::string& address) {
  const absl::Time deadline = SteadyTime().Now() + kEndMax;
  while (SteadyTime().Now() < deadline) {
    const absl::StatusOr<wire::GetStatusReply> status = scheduler.GetStatus(kAskTimeout);
    // Whoever looks after the run may have restarted a scheduler that died before it had saved that it was told.
    if (status.ok() && !HasEnded(*status)) {
      return absl::UnavailableError(absl::StrCat("the scheduler at ", address, " trains again; stop it once more"));
    }
    if (absl::IsUnavailable(status.status())) return absl::OkStatus();
    absl::Notification().WaitForNotificationWithTimeout(kEndPoll);
  }
  return absl::DeadlineExceededError(absl::StrCat("the scheduler at ", address, " has not ended within ",
                                                  absl::FormatDuration(kEndMax), ", although its job is over"));
}

// Waits until whoever looks after the run in a run folder has ended. Returns the command that continues the run, or
// nothing if `target` is no run folder.
//   kDeadlineExceeded  the run goes on, for example with a scheduler that was started again
absl::StatusOr<std::string> AwaitGoOn(const std::string& target) {
  const absl::Time deadline = SteadyTime().Now() + kFolderMax;
  while (SteadyTime().Now() < deadline) {
    const absl::StatusOr<wire::JobStatus> end = ReadEnd(target);
    if (!end.ok() || !end->go_on().empty()) return end.ok() ? end->go_on() : "";
    absl::Notification().WaitForNotificationWithTimeout(kEndPoll);
  }
  return absl::DeadlineExceededError(absl::StrCat("the scheduler is gone, but the run in ", target, " has not ended ",
                                                  "within ", absl::FormatDuration(kFolderMax),
                                                  "; `slackline status` says what it does"));
}

// Returns the address of the run's scheduler. Waits for it in the folder of a run that begins.
absl::StatusOr<std::string> AwaitAddress(const std::string& target) {
  const absl::Time deadline = SteadyTime().Now() + kBeginMax;
  while (true) {
    absl::StatusOr<std::string> address = FindAddress(target);
    if (address.ok() || SteadyTime().Now() > deadline) return address;
    const absl::StatusOr<wire::JobStatus> end = ReadEnd(target);
    if (!end.ok() || end->state() != kAway) return address;
    absl::Notification().WaitForNotificationWithTimeout(kEndPoll);
  }
}

int Stop(const StopCommandOptions& options) {
  const std::string& target = options.run.target;
  if (options.reason.empty() || options.reason.size() > kStopReasonMax) {
    return ComplainOfWrongUse(absl::InvalidArgumentError(absl::StrCat(
        "--reason: found ", options.reason.size(), " bytes; allowed are 1 to ", kStopReasonMax, " bytes")));
  }
  // A job of the service may still wait in its queue.
  if (const std::optional<NamedJob> job = JobOfTarget(target)) return StopJobOfService(*job, options.reason);
  const absl::StatusOr<std::string> address = AwaitAddress(target);
  if (!address.ok()) return Complain(OrTheEnd(target, address.status()));
  const auto protection = FindProtection(options.run);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  SchedulerClient scheduler(*address, *protection);
  const absl::StatusOr<wire::GetStatusReply> before = scheduler.GetStatus(kAskTimeout);
  if (!before.ok()) {
    const absl::Status failed =
        absl::UnavailableError(absl::StrCat("nothing was stopped: ", WhoSays(*address, before.status())));
    return Complain(OrTheEnd(target, failed));
  }
  const bool stops = before->state() == wire::JOB_STOPPED;
  if (HasEnded(*before) && !stops) {
    return Complain(absl::FailedPreconditionError(absl::StrCat("the run has ended before: ", before->reason())));
  }
  const absl::Status told = stops ? absl::OkStatus() : scheduler.StopJob(options.reason, /*failed=*/false);
  if (!told.ok()) {
    return Complain(absl::UnavailableError(absl::StrCat("nothing was stopped: ", WhoSays(*address, told))));
  }
  if (const absl::Status gone = AwaitGone(scheduler, *address); !gone.ok()) return Complain(gone);
  const absl::StatusOr<std::string> go_on = AwaitGoOn(target);
  if (!go_on.ok()) return Complain(go_on.status());
  std::printf("stopped%s\n", go_on->empty() ? "" : absl::StrCat("; to continue: ", *go_on).c_str());
  return kExitDone;
}

}  // namespace

AddedCommand AddStop(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<StopCommandOptions>();
  CLI::App* command = app.add_subcommand("stop", "Save a run, end it, and wait for that");
  AddRun(*command, options->run);
  command->add_option("--reason", options->reason, "Reason for the run's events")->type_name("TEXT");
  SetHelp(*command, kStopHelp);
  return {command, [options] { return Stop(*options); }};
}

}  // namespace slackline::cli

#include "cli/commands/servers.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "cli/run/report.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_end.h"
#include "cli/run/run_lock.h"
#include "cli/run/scheduler_client.h"
#include "common/job/job_file.h"
#include "common/text/counted.h"
#include "common/text/help.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

const HelpText kServersHelp = {
    .example = "slackline servers add runs/first",
    .text =
        "Shards move while training continues; workers that push to a moving shard wait for some tenths of a second. "
        "`slackline train` starts the added servers. Without it, start them by hand: slackline-ps JOB.yaml "
        "--scheduler RUN/scheduler.address --name NAME.\n\n"
        "Shards do not move with durability.mode: replicated. More: slackline help resize.",
    .examples =
        "slackline servers add runs/first --count 2 --wait 0\n"
        "slackline servers drain runs/first ps-1"};

struct ServersOptions {
  StatusOptions run;
  uint32_t add = 0;
  std::vector<std::string> drain;
  // Time to wait for the change; 0: does not wait.
  absl::Duration wait = absl::Seconds(120);
};

constexpr absl::Duration kPoll = absl::Milliseconds(100);
constexpr absl::Duration kServersCallTimeout = absl::Seconds(5);

// "ps-1 (5 shards), ps-2 (6 shards)", and who is on the way in or out.
std::string Describe(const wire::GetStatusReply& status) {
  std::vector<std::string> servers;
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() != wire::MEMBER_ROLE_SERVER || member.backup() || member.state() == "left") continue;
    servers.push_back(absl::StrCat(member.name(), " (", Counted(member.shards(), "shard"),
                                   member.state() == "live" ? "" : absl::StrCat(", ", member.state()), ")"));
  }
  return absl::StrJoin(servers, ", ");
}

// Of a move which shards, not in which of its states.
std::string Awaited(const wire::GetStatusReply& status) {
  std::vector<std::string> awaited = PendingServers(status);
  if (!status.moving().empty()) {
    awaited.push_back(absl::StrCat("moving ", status.moving().substr(0, status.moving().find(','))));
  }
  if (status.servers_to_come() > 0) {
    awaited.push_back(
        "`slackline train` starts servers by itself; elsewhere: slackline-ps JOB.yaml --scheduler "
        "RUN/scheduler.address --name NAME");
  }
  return absl::StrJoin(awaited, "; ");
}

// Until nothing moves any more.
int Await(SchedulerClient& scheduler, absl::Duration wait) {
  const absl::Time deadline = SteadyTime().Now() + wait;
  std::string said;
  absl::Status last = absl::OkStatus();
  while (SteadyTime().Now() < deadline) {
    const absl::StatusOr<wire::GetStatusReply> status = scheduler.GetStatus(kServersCallTimeout);
    last = status.status();
    if (status.ok()) {
      if (!status->servers_change()) {
        std::printf("the servers are %s\n", Describe(*status).c_str());
        return kExitDone;
      }
      if (HasEnded(*status)) {
        return Complain(absl::AbortedError(absl::StrCat("the job has ended meanwhile: ", status->reason())));
      }
      const std::string what = Awaited(*status);
      if (!what.empty() && what != said) {
        std::printf("%s\n", what.c_str());
        std::fflush(stdout);
      }
      if (!what.empty()) said = what;
    }
    absl::Notification().WaitForNotificationWithTimeout(kPoll);
  }
  if (!last.ok()) {
    return Complain(absl::UnavailableError(absl::StrCat("the scheduler does not answer: ", last.message())));
  }
  return Complain(absl::DeadlineExceededError(absl::StrCat("not done within ", absl::FormatDuration(wait),
                                                           " (--wait); it goes on, and `slackline status` shows it",
                                                           said.empty() ? "" : ": ", said)));
}

// Servers that `slackline train` would start here in vain, again and again.
absl::Status CheckRoom(const ServersOptions& options) {
  const std::filesystem::path run = options.run.target;
  std::error_code error;
  // Under SLURM they are started by hand, anywhere.
  if (options.add == 0 || !RunsHere(run) || std::filesystem::exists(run / "nodes", error)) return absl::OkStatus();
  const absl::StatusOr<job::Job> job = ReadJobFile(run / "job.yaml");
  return job.ok() ? CheckFreePorts(*job, options.add) : job.status();
}

// Changes the servers of a run, prints, and returns the exit code: 0 once all shards are where they are to be; without
// waiting, 0 once the scheduler has accepted the change.
int ChangeServers(const ServersOptions& options) {
  const absl::StatusOr<std::string> address = FindAddress(options.run.target);
  if (!address.ok()) return Complain(OrTheEnd(options.run.target, address.status()));
  const auto protection = FindProtection(options.run);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  if (absl::Status room = CheckRoom(options); !room.ok()) return Complain(room);
  SchedulerClient scheduler(*address, *protection);
  wire::ChangeServersRequest request;
  request.set_add(options.add);
  for (const std::string& name : options.drain) request.add_drain(name);
  const absl::StatusOr<uint32_t> servers = scheduler.ChangeServers(request);
  if (!servers.ok()) {
    const absl::Status failed(servers.status().code(), WhoSays(*address, servers.status()));
    return Complain(OrTheEnd(options.run.target, failed));
  }
  std::printf("the run will have %d server%s\n", *servers, *servers == 1 ? "" : "s");
  std::fflush(stdout);
  return options.wait > absl::ZeroDuration() ? Await(scheduler, options.wait) : kExitDone;
}

}  // namespace

AddedCommand AddServers(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<ServersOptions>();
  CLI::App* command = app.add_subcommand("servers", "Add servers to a run, or remove some, while it trains");
  command->require_subcommand(1);
  SetHelp(*command, kServersHelp);
  const auto add = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    TakeJobNumbers(*AddRun(*verb, options->run));
    verb->add_option_function<double>(
            "--wait", [options](double seconds) { options->wait = absl::Seconds(seconds); },
            "Time to wait until the shards have moved; 0: do not wait. Default: 120")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.0, 1e6));
    SetHelp(*verb, kServersHelp);
    return verb;
  };
  CLI::App* more = add("add", "Add servers, which take shards from the others");
  options->add = 1;
  more->add_option("--count", options->add, "Number of servers to add")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  CLI::App* fewer = add("drain", "Remove servers, whose shards move to the others");
  fewer->add_option("NAME", options->drain, "Names of the servers, as `slackline status` shows them")->required();
  return {command, [options] {
            if (!options->drain.empty()) options->add = 0;
            return ChangeServers(*options);
          }};
}

}  // namespace slackline::cli

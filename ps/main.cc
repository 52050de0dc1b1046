// slackline-ps: one parameter-server process. Builds the object graph, then waits for its end.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/job/command_options.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/serve_metrics.h"
#include "common/network/interfaces.h"
#include "common/network/link_speed.h"
#include "common/network/on_this_machine.h"
#include "common/network/ports.h"
#include "common/process/kill_point.h"
#include "common/rpc/channel.h"
#include "common/security/security.h"
#include "common/text/help.h"
#include "common/text/member_name.h"
#include "common/text/version_text.h"
#include "common/time/clock.h"
#include "ps/ending.h"
#include "ps/service/registration.h"
#include "ps/service/sequencer.h"

namespace slackline::ps {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Flags : MemberOptions {
  std::string listen;
  std::optional<uint32_t> link_mbit;
};

// A scheduler that is started again finds its servers still there.
absl::Duration SchedulerSilenceMax(const job::Job& job, const Timeouts& timeouts) {
  if (job.durability().mode() == job::Durability::NONE) return timeouts.worker_dead();
  return std::max(timeouts.worker_dead(), absl::Seconds(job.durability().scheduler_return_s()));
}

// A machine whose interfaces cannot be listed has a link that is not known.
uint32_t LinkOf(const std::string& host) {
  const auto addresses = network::InterfaceAddresses();
  return addresses.ok() ? network::LinkMbit(host, *addresses) : 0;
}

std::string ListenAddress(const Flags& flags, const job::Job& job) {
  return flags.listen.empty() ? absl::StrCat(job.network().listen(), ":0") : flags.listen;
}

absl::Status CheckListening(const Flags& flags, const job::Job& job) {
  absl::Status status = security::CheckListening(HostOf(ListenAddress(flags, job)), job.security());
  if (job.network().metrics()) status.Update(security::CheckListening(job.network().listen(), job.security()));
  return status;
}

absl::StatusOr<std::unique_ptr<Sequencer>> StartSequencer(const SequencerOptions& options, Metrics& metrics,
                                                          const TimeSource& time) {
  return network::StartServer<Sequencer>(options.listen, options.job.network().ports(),
                                         [&](const std::string& address) {
                                           SequencerOptions at = options;
                                           at.listen = address;
                                           return Sequencer::Start(at, metrics, time);
                                         });
}

// Waits for the job's last checkpoint, which needs this server: a supervisor may stop all processes of a job at once.
void AwaitLastCheckpoint(Ending& ending, const Registration& registered, const job::Job& job,
                         const Timeouts& timeouts) {
  // A heartbeat reports the end of the job within this time.
  if (ending.AwaitAnother(timeouts.notice()) || !registered.job_ended()) return;
  log::Info("the job has ended; this server waits for the last checkpoint before it stops");
  ending.AwaitAnother(timeouts.worker_dead() + absl::Seconds(job.checkpoint().timeout_s()));
}

absl::StatusOr<std::string> Serve(const Flags& flags, const job::Job& job, const security::Security& security,
                                  Ending& ending) {
  Metrics metrics(ProcessLabels(job.name(), flags.name, "server"));
  const absl::StatusOr<std::string> served = ServeMetrics(job.network(), metrics);
  if (!served.ok()) return served.status();
  metrics.SetMissing("has not registered with the scheduler yet");
  const SteadyTime time;
  const Timeouts timeouts = TimeoutsOf(job);

  SequencerOptions options;
  options.listen = ListenAddress(flags, job);
  options.security = security;
  options.job = job;
  options.timeouts = timeouts;
  options.on_stop = [&](const std::string& reason) { ending.End({0, reason}); };
  auto sequencer = StartSequencer(options, metrics, time);
  if (!sequencer.ok()) return sequencer.status();

  if (const std::string warning = security::ListeningWarning(HostOf(options.listen), job.security());
      !warning.empty()) {
    log::Warning(warning);
  }

  RegistrationOptions registration;
  registration.scheduler = flags.scheduler;
  registration.protection = security.To(security::Role::kScheduler);
  registration.name = flags.name;
  registration.address =
      absl::StrCat(job.network().advertise().empty() ? HostOf(options.listen) : job.network().advertise(), ":",
                   (*sequencer)->port());
  registration.local = (*sequencer)->local();
  registration.local.set_topology(flags.topology);
  registration.local.set_link_mbit(flags.link_mbit.value_or(LinkOf(HostOf(registration.address))));
  registration.job_fingerprint = Fingerprint(job);
  registration.timeouts = timeouts;
  registration.scheduler_silence_max = SchedulerSilenceMax(job, timeouts);
  registration.metrics_address = *served;
  registration.on_registered = [&] { metrics.SetMissing(""); };
  registration.on_end = [&](const absl::Status& status) {
    ending.End({status.ok() ? 0 : kExitFailed, std::string(status.message())});
  };
  const Registration registered(registration, **sequencer);
  const Ending::Result result = ending.Wait();
  if (result.by_signal) {
    AwaitLastCheckpoint(ending, registered, job, timeouts);
    (*sequencer)->SnapshotAtEnd();
  }
  if (result.exit_code != 0) return absl::UnavailableError(result.reason);
  return result.reason;
}

int Main(int argc, char** argv) {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLogButRefusals();
  Flags flags;
  flags.name = absl::StrCat("ps-", ::getpid());
  CLI::App app("Parameter server of one job: holds shards of the model and applies the optimizer.", "slackline-ps");
  app.set_version_flag("--version", VersionText("slackline-ps"));
  AddMemberOptions(app, flags, "Name in logs and messages, unique among the servers")->required();
  app.add_option("--listen", flags.listen,
                 "Address to listen on. Port 0 takes the first free port of network.ports, or any free port")
      ->type_name("HOST:PORT")
      ->check(AddressMistake);
  app.add_option("--link-mbit", flags.link_mbit,
                 "Speed of the network link of this machine; a faster server gets more shards. 0: not known. Default: "
                 "the speed that the network interface reports")
      ->type_name("MBIT");
  std::string kill_at;
  // Not in --help: it is for tests.
  app.add_option("--kill-at", kill_at)->group("");
  SetHelp(app, {.example = "slackline-ps job.yaml --scheduler runs/first/scheduler.address --name ps-2",
                .most_used = "--scheduler --name --listen",
                .groups = {{"Network", "--topology --link-mbit"}, {"Supervision", "--supervised"}},
                .text = "Exit codes: 0 done or stopped; 1 failed; 2 wrong use."});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (const absl::Status armed = kill_point::Arm(kill_at); !armed.ok()) {
    std::cerr << "--kill-at: " << armed.message() << std::endl;
    return kExitUsage;
  }
  absl::StatusOr<job::Job> job = ReadJobFile(flags.job_file, flags.overrides);
  if (!job.ok()) {
    std::cerr << job.status().message() << std::endl;
    return kExitUsage;
  }
  *job = Resolve(*job);
  const absl::StatusOr<job::Network> network = network::OnThisMachine(job->network());
  if (network.ok()) *job->mutable_network() = *network;
  const absl::Status allowed = network.ok() ? CheckListening(flags, *job) : network.status();
  if (!allowed.ok()) {
    std::cerr << allowed.message() << std::endl;
    return kExitUsage;
  }
  log::Initialise(flags.name);
  if (job->output().log_format() == job::Output::JSON) log::WriteJson(job->name());
  Ending ending;
  const SignalWatch signals(ending, flags.supervised);
  // After the signals: it may have a thread.
  const absl::StatusOr<security::Security> security = security::Security::Open(*job, security::Role::kServer);
  const absl::StatusOr<std::string> served =
      security.ok() ? Serve(flags, *job, *security, ending) : absl::StatusOr<std::string>(security.status());
  served.ok() ? log::Info("ends: ", *served) : log::Error("ends: ", served.status().message());
  log::Flush();
  if (!security.ok()) return kExitUsage;
  return served.ok() ? 0 : kExitFailed;
}

}  // namespace
}  // namespace slackline::ps

int main(int argc, char** argv) { return slackline::ps::Main(argc, argv); }

// Measures what the workers of a whole machine cost a real slackline-scheduler, which is a process of its own. This
// process plays the workers: they register, send heartbeats, ask for work, die and come anew, each over its own
// connection.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/scheduler_load/control_server.h"
#include "bench/scheduler_load/fleet.h"
#include "bench/support/command_line.h"
#include "bench/support/process.h"
#include "bench/support/report.h"
#include "bench/support/temporary_folder.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "common/log/logging.h"
#include "common/process/steady_flag.h"
#include "common/rpc/channel.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);

struct Options {
  std::string scheduler;
  uint32_t workers = 13'900, servers = 2;
  double deaths_percent = 1, step_seconds = 1;
  Effort effort{.seconds = 60, .repeats = 1};
};

std::string JobText(const Options& options) {
  return absl::StrCat("cluster: {workers: ", options.workers, ", servers: ", options.servers,
                      "}\nmodel: {kind: mlp}\nconsistency: {mode: async}\ntraining: {epochs: 1000, batch_size: 32}\n",
                      "network: {listen: 127.0.0.1}\nlimits: {streams_max: 65536}\n");
}

// The scheduler's process. Ends with this object.
class SchedulerProcess {
 public:
  SchedulerProcess(const std::string& program, const TemporaryFolder& folder)
      : log_(folder / "scheduler.log"), address_file_(folder / "address") {
    const std::string job = folder / "job.yaml", run = folder / "run";
    // This process may have threads by now, so its child does nothing that takes a lock.
    child_.emplace("the scheduler", [&](const Channel&) {
      const int log = creat(log_.c_str(), 0600);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execl(program.c_str(), "slackline-scheduler", job.c_str(), "--run-folder", run.c_str(), "--address-file",
            address_file_.c_str(), "--unwatched", nullptr);
      _exit(127);
    });
  }

  // Returns HOST:PORT as soon as the scheduler listens.
  std::string AwaitAddress() const {
    const absl::Time end = absl::Now() + kStartTimeout;
    while (absl::Now() < end) {
      std::ifstream file(address_file_);
      if (std::string address; file >> address) return address;
      SteadyPause(absl::Milliseconds(20));
    }
    Fail("the scheduler did not start");
  }
  [[noreturn]] void Fail(const std::string& why) const {
    std::ifstream log(log_);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    const size_t from = text.size() > 2000 ? text.size() - 2000 : 0;
    ExitOnError(absl::UnavailableError(absl::StrCat(why, ". The end of its log:\n", text.substr(from))));
    std::abort();
  }
  pid_t pid() const { return child_->pid(); }

 private:
  const std::string log_, address_file_;
  std::optional<Child> child_;
};

Row Measure(const Options& options) {
  const TemporaryFolder folder;
  std::ofstream(folder / "job.yaml") << JobText(options);
  const absl::StatusOr<job::Job> job = ReadJobFile(folder / "job.yaml");
  ExitOnError(job.status());
  const Timeouts timeouts = TimeoutsOf(Resolve(*job));

  const SchedulerProcess scheduler(options.scheduler, folder);
  const std::string address = scheduler.AwaitAddress();
  std::vector<std::unique_ptr<ControlServer>> servers;
  std::vector<std::string> addresses;
  for (uint32_t i = 0; i < options.servers; ++i) {
    addresses.push_back(servers.emplace_back(std::make_unique<ControlServer>())->address());
  }
  constexpr uint32_t kBatch = 32;
  Fleet fleet({.scheduler = address,
               .job_fingerprint = Fingerprint(Resolve(*job)),
               .servers = addresses,
               .workers = options.workers,
               .train_samples = uint64_t{options.workers} * kBatch * 1'000'000,
               .batch = kBatch,
               .timeouts = timeouts,
               .step = absl::Seconds(options.step_seconds),
               .arrival = absl::Seconds(std::max(1.0, options.workers / 1000.0))});
  const auto check = [&] {
    if (const absl::Status mistake = fleet.mistake(); !mistake.ok()) scheduler.Fail(std::string(mistake.message()));
  };
  const absl::Time begin = absl::Now();
  while (fleet.counts().live < options.workers) {
    check();
    if (absl::Now() - begin > timeouts.startup) {
      scheduler.Fail(absl::StrCat(fleet.counts().live, " of ", options.workers, " workers are live after ",
                                  absl::FormatDuration(timeouts.startup)));
    }
    SteadyPause(absl::Milliseconds(100));
  }
  const absl::Duration joined = absl::Now() - begin;
  fleet.set_deaths_per_minute(options.workers * options.deaths_percent / 100);
  // The scheduler has noticed the first deaths after this time.
  SteadyPause(timeouts.worker_dead() + 2 * timeouts.heartbeat);
  check();

  fleet.TakeHeartbeatTimes();
  const FleetCounts before = fleet.counts();
  const double scheduler_before = CpuSeconds(scheduler.pid()), own_before = CpuSeconds(getpid());
  const absl::Time start = absl::Now();
  SteadyPause(absl::Seconds(options.effort.seconds));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const double scheduler_cpu = CpuSeconds(scheduler.pid()) - scheduler_before,
               own_cpu = CpuSeconds(getpid()) - own_before;
  const FleetCounts after = fleet.counts();
  const std::vector<double> times = fleet.TakeHeartbeatTimes();
  check();
  const auto per_second = [&](uint64_t FleetCounts::*count) {
    return static_cast<double>(after.*count - before.*count) / seconds;
  };
  const double calls = per_second(&FleetCounts::heartbeats) + per_second(&FleetCounts::tasks) +
                       per_second(&FleetCounts::others) + per_second(&FleetCounts::repeated);
  return Row(absl::StrCat(options.workers, " workers"))
      .Add("heartbeat_period_ms", absl::ToDoubleMilliseconds(timeouts.heartbeat))
      .Add("joined_after_s", absl::ToDoubleSeconds(joined))
      .Add("scheduler_cores", scheduler_cpu / seconds)
      .Add("load_cores", own_cpu / seconds)
      .Add("heartbeats_per_s", per_second(&FleetCounts::heartbeats))
      .Add("tasks_per_s", per_second(&FleetCounts::tasks))
      .Add("cpu_us_per_call", 1e6 * scheduler_cpu / seconds / calls)
      .Add("heartbeat_p50_ms", times.empty() ? 0 : Median(times) / 1000)
      .Add("heartbeat_p99_ms", times.empty() ? 0 : Percentile(times, 0.99) / 1000)
      .Add("deaths", static_cast<double>(after.died - before.died))
      .Add("joins", static_cast<double>(after.joined - before.joined))
      .Add("expelled", static_cast<double>(after.expelled - before.expelled))
      .Add("repeated_calls", static_cast<double>(after.repeated - before.repeated))
      .Add("scheduler_gb", 1e-9 * static_cast<double>(PeakResidentBytes(scheduler.pid())));
}

int Main(int argc, char** argv) {
  Options options;
  options.scheduler = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "slackline-scheduler").string();
  CLI::App app("What many workers cost a real scheduler, over gRPC.", "scheduler_load");
  app.add_option("--workers", options.workers, "Workers of the job")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--servers", options.servers, "Servers of the job")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--deaths", options.deaths_percent, "Workers that die in each minute, in percent; as many others come")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--step-seconds", options.step_seconds, "Time of a worker's step of 32 samples")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--scheduler", options.scheduler, "The scheduler's program")
      ->capture_default_str()
      ->check(CLI::ExistingFile);
  AddEffort(app, options.effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;
  log::Initialise("scheduler_load", log::Least::kWarning);
  rpc::PrepareProcess();
  rpc::SilenceGrpcLog();
  Report report(options.effort.json);
  for (int repeat = 0; repeat < options.effort.repeats; ++repeat) report.Add(Measure(options));
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }

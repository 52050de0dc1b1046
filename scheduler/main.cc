// slackline-scheduler: one a job. Exits with 0 when the job is done or was stopped, 1 when it failed, 2 on wrong use.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/job_file.h"
#include "common/logging.h"
#include "common/metrics.h"
#include "common/rpc/channel.h"
#include "scheduler/address.h"
#include "scheduler/controller.h"
#include "scheduler/options.h"
#include "scheduler/run_folder.h"
#include "scheduler/run_loop.h"
#include "scheduler/scheduler_metrics.h"
#include "scheduler/server_links.h"
#include "scheduler/service.h"

namespace slackline::scheduler {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;

int Complain(const absl::Status& status, int exit_code) {
  log::Error(std::string(status.message()));
  log::Flush();
  return exit_code;
}

Timeouts TimeoutsOf(const job::Job& job) {
  Timeouts timeouts;
  timeouts.heartbeat = absl::Milliseconds(job.timeouts().heartbeat_ms());
  timeouts.stall = absl::Milliseconds(job.timeouts().stall_ms());
  timeouts.startup = absl::Milliseconds(job.timeouts().startup_ms());
  timeouts.task_lease = absl::Seconds(job.local().lease_s());
  return timeouts;
}

// Never 0, which means that one does not know.
JobId NewJobId() {
  std::random_device random;
  return JobId((uint64_t{random()} << 32 | random()) | 1);
}

std::string RunFolderPath(const Options& options, const job::Job& job) {
  if (!options.run_folder.empty()) return options.run_folder;
  return job.output().folder().empty() ? DefaultRunFolder(job.name(), absl::Now()) : job.output().folder();
}

// Absolute, since servers have working directories of their own; empty where none are kept.
std::string SnapshotFolder(const job::Job& job, JobId id, const std::string& run_folder) {
  if (job.durability().mode() == job::Durability::NONE) return "";
  const std::string& folder = job.durability().folder();
  if (folder.empty()) return std::filesystem::absolute(run_folder) / "snapshots";
  return std::filesystem::absolute(folder) / absl::StrFormat("%s-%016x", job.name(), id.value());
}

absl::Status ServeMetrics(Metrics& metrics, const job::Network& network) {
  if (!network.metrics()) return absl::OkStatus();
  absl::StatusOr<uint16_t> port = metrics.Serve(network.listen(), static_cast<uint16_t>(network.metrics_port()));
  if (!port.ok()) return port.status();
  log::Info("metrics at http://", network.listen(), ":", *port, "/metrics");
  return absl::OkStatus();
}

int Run(const Options& options) {
  absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return Complain(read.status(), kWrongUse);
  const job::Job job = Resolve(*read);
  absl::StatusOr<std::unique_ptr<RunFolder>> folder = RunFolder::Create(RunFolderPath(options, job), job, absl::Now());
  if (!folder.ok()) return Complain(folder.status(), kFailed);

  const SteadyTime time;
  const Timeouts timeouts = TimeoutsOf(job);
  Metrics metrics({{"job", job.name()}, {"process", "scheduler"}});
  SchedulerMetrics series(metrics);
  if (absl::Status served = ServeMetrics(metrics, job.network()); !served.ok()) return Complain(served, kFailed);
  ServerLinks links(timeouts);
  const JobId id = NewJobId();
  Controller controller({.job = job,
                         .fingerprint = Fingerprint(job),
                         .id = id,
                         .run_folder = (*folder)->path(),
                         .snapshot_folder = SnapshotFolder(job, id, (*folder)->path()),
                         .timeouts = timeouts},
                        time, links);
  const std::string listen = ListenAddress(options.listen, job.network());
  absl::StatusOr<std::unique_ptr<SchedulerServer>> server = SchedulerServer::Start(listen, controller);
  if (!server.ok()) return Complain(server.status(), kFailed);
  const std::string address = AdvertisedAddress(listen, job.network(), (*server)->port());
  log::Info("job ", job.name(), " listens on ", address, ", writes to ", (*folder)->path());
  for (const std::string& file : {(*folder)->path() + "/scheduler.address", options.address_file}) {
    if (file.empty()) continue;
    if (absl::Status written = WriteAddressFile(file, address); !written.ok()) return Complain(written, kFailed);
  }

  const absl::Duration report_every = absl::Milliseconds(job.output().report_every_ms());
  RunUntilFinished(controller, **folder, series, std::min(timeouts.heartbeat / 2, report_every));
  // Both call the controller: they end before it does.
  server->reset();
  links.Close();
  log::Flush();
  return controller.state() == wire::JOB_FAILED ? kFailed : 0;
}

}  // namespace
}  // namespace slackline::scheduler

int main(int argc, char** argv) {
  slackline::rpc::SilenceGrpcLog();
  int exit_code = 0;
  const auto options = slackline::scheduler::ParseOptions(argc, argv, exit_code);
  if (!options) return exit_code;
  slackline::scheduler::BlockStopSignals();
  slackline::log::Initialise("scheduler");
  return slackline::scheduler::Run(*options);
}

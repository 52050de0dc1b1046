#include "cli/doctor/doctor.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/nodes.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/probe_disk.h"
#include "cli/doctor/probe_ports.h"
#include "cli/doctor/probe_system.h"
#include "cli/run/cluster.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_folder.h"
#include "common/job/job_file.h"
#include "common/security/check_credentials.h"
#include "worker/model/layout.h"
#include "worker/settings/job_checks.h"
#include "worker/settings/job_config.h"
#include "worker/settings/loaded_job.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Certificates that end within it are a warning.
constexpr absl::Duration kSoon = absl::Hours(7 * 24);
constexpr absl::Duration kLinkPatience = absl::Seconds(10);

struct JobProbe {
  JobTrials facts;
  // Number of parameters of the model that the job trains on its data; nullopt if it cannot be determined.
  std::optional<uint64_t> parameters;
};

absl::Status TryData(const job::Job& job, JobProbe& probe) {
  if (absl::Status folder = CheckData(job); !folder.ok()) return folder;
  if (absl::Status weights = CheckWeights(job); !weights.ok()) return weights;
  const worker::WorkerConfig config = worker::MakeWorkerConfig(job, {"worker-1"}, 1);
  const absl::StatusOr<worker::LoadedJob> data = worker::LoadJob(config);
  if (!data.ok()) return data.status();
  const absl::StatusOr<worker::Layout> layout = worker::MakeLayout(data->spec);
  if (layout.ok()) probe.parameters = layout->elements;
  return absl::OkStatus();
}

// Reads all images once.
JobProbe ProbeJob(const job::Job& job) {
  JobProbe probe;
  probe.facts.programs = Programs::CheckAll(job);
  probe.facts.devices = CheckDevices(job);
  probe.facts.data = TryData(job, probe);
  const absl::Time now = absl::Now();
  probe.facts.credentials = security::CheckCredentials(job, now);
  probe.facts.credentials_soon = security::CheckCredentials(job, now + kSoon);
  probe.facts.soon = kSoon;
  return probe;
}

std::string RunFolderOf(const DoctorOptions& options, const job::Job& job) {
  if (!options.run_folder.empty()) return options.run_folder;
  return job.output().folder().empty() ? "runs" : job.output().folder();
}

// What is kept where, each folder once.
std::map<std::string, std::string> Folders(const std::string& run, const job::Job& job) {
  std::map<std::string, std::string> folders = {{run, kRunFolderPurpose}};
  const auto add = [&](const std::string& folder, const char* what) {
    std::string& purpose = folders[folder.empty() ? run : folder];
    absl::StrAppend(&purpose, purpose.empty() ? "" : ", ", what);
  };
  add(job.checkpoint().folder(), "checkpoints");
  if (job.durability().mode() == job::Durability::SNAPSHOT) add(job.durability().folder(), kSnapshotsPurpose);
  return folders;
}

// With itself, over loopback: what the kernel can do at best.
Findings LinkWithItself(const job::Job& job, const Load& load) {
  const absl::Time deadline = absl::Now() + kLinkPatience;
  const absl::StatusOr<Socket> listener = Socket::Listen("127.0.0.1");
  if (!listener.ok()) return {Skipped("link with itself", std::string(listener.status().message()))};
  std::thread other([&] {
    const absl::StatusOr<Socket> socket = listener->Accept(deadline);
    if (socket.ok()) static_cast<void>(AnswerLink(*socket, {}, deadline));
  });
  absl::StatusOr<LinkFacts> link = absl::UnavailableError("");
  {
    const absl::StatusOr<Socket> socket = Socket::Connect(listener->Address(), deadline);
    link = socket.ok() ? MeasureLink(*socket, {}, deadline) : socket.status();
  }
  other.join();
  if (!link.ok()) return {Skipped("link with itself", std::string(link.status().message()))};
  return CheckLink(*link, "itself", job, load);
}

int Show(const std::vector<Examined>& machines, bool json) {
  std::fputs((json ? RenderJson(machines) : RenderText(machines)).c_str(), stdout);
  return Count(machines, Level::kProblem) == 0 ? kExitDone : kExitFailed;
}

}  // namespace

Examined ExamineHere(const DoctorOptions& options, const job::Job& job, uint32_t nodes) {
  const SystemFacts system = ProbeSystem("/");
  const JobProbe probe = ProbeJob(job);
  Load load = nodes > 1 ? NodeLoad(job, nodes) : WholeLoad(job);
  load.parameters = options.parameters > 0 ? std::optional(options.parameters) : probe.parameters;
  Examined here = {system.host, CheckJob(probe.facts, job)};
  Append(here.findings, CheckLimits(system, job, load));
  Append(here.findings, CheckMemory(system, job, load));
  Append(here.findings, CheckProcessors(system.processor, job, load));
  Append(here.findings, CheckContainer(system, job));
  Append(here.findings, CheckClock(system.clock));
  Append(here.findings, CheckGpu(system.gpu, system.memory, job));
  for (const auto& [path, purpose] : Folders(RunFolderOf(options, job), job)) {
    Append(here.findings, CheckDisk(ProbeDisk(purpose, path, {.megabytes = options.disk_megabytes}), job, load));
  }
  const uint32_t ports = 2 * (load.servers + load.workers + (load.scheduler ? 1 : 0));
  Append(here.findings, CheckPorts(ProbePorts(job.network(), ports), job, load));
  if (nodes <= 1) Append(here.findings, LinkWithItself(job, load));
  return here;
}

int Doctor(const DoctorOptions& options) {
  job::Job job;
  if (!options.job_file.empty()) {
    absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
    if (!read.ok()) return ComplainOfWrongUse(read.status());
    if (absl::Status model = worker::CheckJob(*read); !model.ok()) return ComplainOfWrongUse(model);
    job = *std::move(read);
  } else if (!options.overrides.empty()) {
    return ComplainOfWrongUse(
        absl::InvalidArgumentError("found --set without a job file; allowed is both, or neither"));
  }
  job = Resolve(job);
  if (!options.report_to.empty()) {
    const absl::Status reported = ReportTo(options, job, ExamineHere(options, job, options.nodes));
    return reported.ok() ? kExitDone : Complain(reported);
  }
  absl::StatusOr<std::vector<Examined>> nodes = ExamineAllocation(options, job);
  if (nodes.ok()) return Show(*nodes, options.json);
  // Not in an allocation, or one task of a step.
  if (!absl::IsFailedPrecondition(nodes.status())) return Complain(nodes.status());
  return Show({ExamineHere(options, job, 1)}, options.json);
}

}  // namespace slackline::cli::doctor

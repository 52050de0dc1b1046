#include "cli/doctor/probe_job.h"

#include "absl/time/clock.h"
#include "cli/run/cluster.h"
#include "cli/run/device_check.h"
#include "cli/run/run_checks.h"
#include "common/security/check_credentials.h"
#include "worker/model/layout.h"
#include "worker/settings/job_config.h"

namespace slackline::cli::doctor {
namespace {

// Certificates that end within it are a warning.
constexpr absl::Duration kSoon = absl::Hours(7 * 24);

absl::Status TryData(const job::Job& job, JobProbe& probe) {
  if (absl::Status folder = CheckData(job); !folder.ok()) return folder;
  if (absl::Status weights = CheckWeights(job); !weights.ok()) return weights;
  const worker::WorkerConfig config = worker::MakeWorkerConfig(job, {"worker-1"}, 1);
  const absl::StatusOr<images::JobData> data = images::OpenJobData(config.data);
  if (!data.ok()) return data.status();
  const absl::StatusOr<worker::ModelSpec> spec = worker::FitModel(config, data->train);
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<worker::Layout> layout = worker::MakeLayout(*spec);
  if (layout.ok()) probe.parameters = layout->elements;
  return absl::OkStatus();
}

}  // namespace

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

}  // namespace slackline::cli::doctor

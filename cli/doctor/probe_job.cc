#include "cli/doctor/probe_job.h"

#include "absl/time/clock.h"
#include "cli/cluster.h"
#include "cli/run_checks.h"
#include "common/security/check_credentials.h"
#include "worker/data/dataset.h"
#include "worker/job_config.h"
#include "worker/model/layout.h"

namespace slackline::cli::doctor {
namespace {

// Certificates that end within it are a warning.
constexpr absl::Duration kSoon = absl::Hours(7 * 24);

absl::Status TryData(const job::Job& job, JobProbe& probe) {
  if (absl::Status folder = CheckData(job); !folder.ok()) return folder;
  if (job.data().format() != job::Data::IDX) return absl::OkStatus();
  const auto train = worker::Dataset::ReadIdx(job.data().path(), "train", job.data().train_images_max());
  if (!train.ok()) return train.status();
  const auto test = worker::Dataset::ReadIdx(job.data().path(), "t10k");
  if (!test.ok()) return test.status();
  worker::ModelSpec spec = worker::MakeWorkerConfig(job, {"worker-1"}, 1).model;
  spec.height = train->height();
  spec.width = train->width();
  const absl::StatusOr<worker::Layout> layout = worker::MakeLayout(spec);
  if (layout.ok()) probe.parameters = layout->elements;
  return worker::CheckData(*train, *test, spec.classes);
}

}  // namespace

JobProbe ProbeJob(const job::Job& job) {
  JobProbe probe;
  probe.facts.programs = Programs::BesideThisProgram().status();
  probe.facts.data = TryData(job, probe);
  const absl::Time now = absl::Now();
  probe.facts.credentials = security::CheckCredentials(job, now);
  probe.facts.credentials_soon = security::CheckCredentials(job, now + kSoon);
  probe.facts.soon = kSoon;
  return probe;
}

}  // namespace slackline::cli::doctor

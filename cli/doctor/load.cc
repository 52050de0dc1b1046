#include "cli/doctor/load.h"

#include <algorithm>

#include "cli/run/cluster.h"
#include "common/job/job_kinds.h"
#include "common/optimizer/optimizer.h"

namespace slackline::cli::doctor {
namespace {

// Memory of a process without a model. These are more than docs/sizing.md measured.
constexpr uint64_t kServerBaseBytes = uint64_t{64} << 20;
constexpr uint64_t kWorkerBaseBytes = uint64_t{256} << 20;
// Of the allocator.
constexpr double kWaste = 1.15;

uint64_t OptimizerArrays(const job::Job& job) {
  // A script may give any optimizer, and momentum: room for the one that needs most.
  const bool by_script = RunsScripts(job) && !job.optimizer().has_kind();
  const OptimizerFacts& facts = by_script ? FactsOf(OptimizerKind::kAdamW) : FactsOf(job.optimizer());
  return facts.arrays({.momentum = job.optimizer().momentum()}).size();
}

}  // namespace

Load WholeLoad(const job::Job& job) {
  return {.servers = ServerProcesses(job), .workers = job.cluster().workers(), .scheduler = true, .parameters = {}};
}

Load NodeLoad(const job::Job& job, uint32_t nodes) {
  const uint32_t servers = ServerProcesses(job);
  const uint32_t groups = std::max(1u, static_cast<uint32_t>(job.worker().groups_size()));
  return {
      .servers = (servers + nodes - 1) / std::max(1u, nodes), .workers = groups, .scheduler = true, .parameters = {}};
}

uint64_t ServerBytes(const job::Job& job, uint64_t parameters) {
  const uint64_t part = sizeof(float) * (parameters / std::max(1u, job.cluster().servers()) + 1);
  uint64_t versions = 1 + job.limits().pinned_versions_max();
  if (job.consistency().delay_compensation() != job::DelayCompensation::NONE) {
    versions += job.consistency().dc_references_max();
  }
  // Readers hold versions of the weights themselves, beside the predicted ones that workers hold.
  if (PredictsWeights(job)) versions += 1 + job.limits().pinned_versions_max();
  const uint64_t staged = job.limits().staging_bytes_max() > 0
                              ? job.limits().staging_bytes_max()
                              : part * (uint64_t{job.wire().window()} * job.cluster().workers() + 1);
  return static_cast<uint64_t>(kWaste * static_cast<double>(part * versions)) + part * OptimizerArrays(job) + staged +
         kServerBaseBytes;
}

uint64_t WorkerBytes(const job::Job& job, uint64_t parameters) {
  // Weights and gradient of each step in flight, and one more of each to compute with.
  return kWorkerBaseBytes + 2 * sizeof(float) * parameters * (uint64_t{job.wire().window()} + 1);
}

uint64_t StateBytes(const job::Job& job, uint64_t parameters) {
  return sizeof(float) * parameters * (1 + OptimizerArrays(job));
}

}  // namespace slackline::cli::doctor

#include "simulator/rules.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_kinds.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator {
namespace {

absl::Status Refuse(const std::string& key, const std::string& found, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": found ", found, "; a simulation allows ", allowed));
}

}  // namespace

absl::Status CheckSimulation(const job::Job& job, bool gradients) {
  if (RunsScripts(job)) {
    return Refuse("model.kind", "external", "a model that the job file describes, because it runs no script");
  }
  // Values are not encoded here: what would be learned from them, with fewer bytes, would be a lie.
  const std::string exact = "fp32, or any with --no-gradients";
  if (gradients && job.wire().encoding() != "fp32") return Refuse("wire.encoding", job.wire().encoding(), exact);
  if (gradients && !job.model().weights().empty()) return Refuse("model.weights", job.model().weights(), "none");
  if (job.wire().groups_size() > 0) return Refuse("wire.groups", "a list", "none");
  if (gradients && job.wire().pull_encoding() != job::Wire::FP32) return Refuse("wire.pull_encoding", "bf16", exact);
  // Each worker would need a teacher.
  if (gradients && job.training().self_supervised().method() == job::SelfSupervised::SELF_DISTILLATION) {
    return Refuse("training.self_supervised.method", "self_distillation",
                  "none and contrastive, or any with --no-gradients");
  }
  // It scales no loss, and skips no steps.
  if (gradients && job.worker().precision() == job::Worker::FP16) {
    return Refuse("worker.precision", "fp16", "float32 or bf16, or any with --no-gradients");
  }
  // Its workers are of simulation.classes.
  if (job.worker().groups_size() > 0) return Refuse("worker.groups", "a list", "none");
  // More often, virtual time would hardly go on.
  const double every = job.simulation().evaluate_every_s();
  if (every > 0 && every < 0.001) {
    return Refuse("simulation.evaluate_every_s", absl::StrCat(every), "0, or 0.001 and more");
  }
  for (const job::WorkerClass& kind : job.simulation().classes()) {
    if (!gradients && kind.poison() != job::Poison::NONE) {
      return Refuse("simulation.classes", "poison with --no-gradients", "it with gradients");
    }
  }
  for (const job::WorkerClass& kind : job.simulation().classes()) {
    if (kind.dies_every_s() > 0 && kind.dies_every_s() < 0.001) {
      return Refuse("simulation.classes", absl::StrCat("dies_every_s: ", kind.dies_every_s()), "0, or 0.001 and more");
    }
    if (kind.dies_every_s() > 0 && (kind.dies_s() > 0 || kind.leaves_s() > 0)) {
      return Refuse("simulation.classes", "dies_every_s beside dies_s or leaves_s",
                    "either dies_every_s or the others");
    }
  }
  uint64_t named = 0;
  for (const job::WorkerClass& kind : job.simulation().classes()) named += kind.workers();
  if (named > job.cluster().workers()) {
    return Refuse("simulation.classes", absl::StrCat(named, " workers"),
                  absl::StrCat("at most cluster.workers (", job.cluster().workers(), ")"));
  }
  const std::vector<WorkerPlan> plans = PlanWorkers(job);
  const bool somebody =
      std::any_of(plans.begin(), plans.end(), [](const WorkerPlan& plan) { return plan.joins == absl::UnixEpoch(); });
  if (!somebody) return Refuse("simulation.classes", "no worker that joins at 0 s", "at least one");
  for (const WorkerPlan& plan : plans) {
    const absl::Time ends = std::min(plan.leaves, plan.dies);
    if (ends <= plan.joins) return Refuse("simulation.classes", plan.name + " ends before it joins", "it later");
  }
  return absl::OkStatus();
}

}  // namespace slackline::simulator

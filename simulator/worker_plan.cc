#include "simulator/worker_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/slowdown.h"

namespace slackline::simulator {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;

absl::Time Moment(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

WorkerPlan Plan(const job::Simulation& simulation, const job::WorkerClass& kind) {
  const auto own = [](double value, double otherwise) { return value >= 0 ? value : otherwise; };
  WorkerPlan plan;
  plan.slowdown = kind.slowdown();
  plan.jitter = own(kind.jitter(), simulation.jitter());
  plan.pause_every = absl::Seconds(kind.pause_every_s());
  plan.pause = absl::Seconds(kind.pause_s());
  plan.pause_silent = kind.pause_silent();
  plan.poison = kind.poison();
  plan.joins = Moment(kind.joins_s());
  if (kind.leaves_s() > 0) plan.leaves = Moment(kind.leaves_s());
  if (kind.dies_s() > 0) plan.dies = Moment(kind.dies_s());
  plan.dies_every = absl::Seconds(kind.dies_every_s());
  if (kind.returns_after_s() > 0) plan.returns_after = absl::Seconds(kind.returns_after_s());
  plan.link.latency = absl::Microseconds(own(kind.latency_us(), simulation.latency_us()));
  plan.link.bytes_per_second = kBytesPerGbit * own(kind.gbit_per_s(), simulation.worker_gbit_per_s());
  return plan;
}

}  // namespace

std::vector<WorkerPlan> PlanWorkers(const job::Job& job) {
  std::vector<WorkerPlan> plans;
  const size_t workers = job.cluster().workers();
  for (const job::WorkerClass& kind : job.simulation().classes()) {
    const size_t count = std::min<size_t>(kind.workers(), workers - plans.size());
    plans.insert(plans.end(), count, Plan(job.simulation(), kind));
  }
  plans.resize(workers, Plan(job.simulation(), job::WorkerClass()));
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].name = absl::StrCat("worker-", i + 1);
    plans[i].slowdown *= SlowdownOf(plans[i].name, job.worker());
  }
  return plans;
}

}  // namespace slackline::simulator

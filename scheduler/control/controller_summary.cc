// The whole run in figures.
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/job/push_samples.h"
#include "common/slowdown.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

// A name that no worker can have.
constexpr char kForgottenWorkers[] = "(earlier workers)";

std::string StateName(wire::JobState state) {
  const std::string name = absl::AsciiStrToLower(wire::JobState_Name(state));
  return name.substr(name.find('_') + 1);  // job_done
}

}  // namespace

RunSummary Controller::Summary() {
  absl::MutexLock lock(&mutex_);
  const job::Job& job = config_.job;
  RunSummary summary;
  summary.name = job.name();
  summary.state = StateName(state_);
  summary.reason = state_ == wire::JOB_STARTING ? Missing() : reason_;
  summary.mode = absl::AsciiStrToLower(job::Consistency::Mode_Name(job.consistency().mode()));
  summary.seed = job.seed();
  summary.workers = job.cluster().workers();
  summary.servers = job.cluster().servers();
  summary.epochs = job.training().epochs();
  summary.epochs_done = tasks_ ? tasks_->ranges().epochs_done() : 0;
  summary.epoch_samples = shards_.layout().train_samples * PassesOfPush(job);
  summary.time_s = ElapsedSeconds(time_.Now());
  summary.train_s = ElapsedSeconds(std::min(time_.Now(), trained_));
  summary.totals = progress_.totals();
  summary.loss = progress_.latest().loss;
  summary.staleness = progress_.staleness();
  summary.staleness_max = progress_.staleness_max();
  summary.staleness_bound = watch_.bound();
  summary.staleness_bound_changes = watch_.bound_changes();
  summary.slack_max = progress_.slack_max();
  summary.divergences = watch_.divergences();
  summary.worker_deaths = worker_deaths_;
  summary.samples_given_twice = tasks_ ? tasks_->ranges().samples_given_twice() : 0;
  summary.worker_list = SummariseWorkers();
  summary.evaluations = evaluations_.all();
  const std::optional<wire::EvaluationReport>& last = evaluations_.last();
  if (last && last->has_top5_accuracy()) summary.top5_accuracy = last->top5_accuracy();
  if (last && last->has_map_50()) {
    ObjectsSummary& objects = summary.objects.emplace();
    objects.map_50 = last->map_50();
    if (last->has_mask_map()) objects.mask_map = last->mask_map();
    if (last->has_mask_map_50()) objects.mask_map_50 = last->mask_map_50();
  }
  if (progress_.energy().metered()) summary.energy = progress_.energy().View(summary.time_s);
  return summary;
}

std::vector<WorkerSummary> Controller::SummariseWorkers() const {
  std::vector<WorkerSummary> workers;
  // A process that was started again has another number and the same name.
  std::map<std::string, size_t> places;
  for (const auto& [id, worker] : membership_.workers()) {
    const auto [place, fresh] = places.emplace(worker.name, workers.size());
    if (fresh) workers.emplace_back();
    WorkerSummary& summary = workers[place->second];
    summary.name = worker.name;
    summary.slowdown = SlowdownOf(worker.name, config_.job.worker());
    summary.state = std::string(ToString(worker.state));
    summary.totals.Add(progress_.TotalsOf(id));
  }
  for (const auto& [name, totals] : progress_.earlier()) {
    const auto [place, fresh] = places.emplace(name, workers.size());
    if (fresh) {
      WorkerSummary& absent = workers.emplace_back();
      absent.name = name;
      absent.slowdown = SlowdownOf(name, config_.job.worker());
      absent.state = std::string(ToString(WorkerState::kLeft));
    }
    workers[place->second].totals.Add(totals);
  }
  if (progress_.forgotten().steps > 0) {
    WorkerSummary& earlier = workers.emplace_back();
    earlier.name = kForgottenWorkers;
    earlier.state = std::string(ToString(WorkerState::kLeft));
    earlier.totals = progress_.forgotten();
  }
  return workers;
}

}  // namespace slackline::scheduler

#include "scheduler/control/job_summary.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "common/address.h"
#include "common/job/push_samples.h"
#include "common/slowdown.h"
#include "scheduler/base/job_state_name.h"
#include "scheduler/control/job_view.h"

namespace slackline::scheduler {
namespace {

// A name that no worker can have.
constexpr char kForgottenWorkers[] = "(earlier workers)";

}  // namespace

RunSummary JobSummary::Summary() const {
  const job::Job& job = job_.config.job;
  RunSummary summary;
  summary.name = job.name();
  summary.state = NameOf(job_.phase.state);
  summary.reason = job_.phase.state == wire::JOB_STARTING ? JobView(job_).Missing() : job_.phase.reason;
  summary.mode = absl::AsciiStrToLower(job::Consistency::Mode_Name(job.consistency().mode()));
  summary.seed = job.seed();
  summary.workers = job.cluster().workers();
  summary.servers = job.cluster().servers();
  summary.epochs = job.training().epochs();
  summary.epochs_done = job_.tasks ? job_.tasks->ranges().epochs_done() : 0;
  summary.epoch_samples = job_.shards.layout().train_samples * PassesOfPush(job);
  summary.time_s = job_.phase.ElapsedSeconds(job_.time.Now());
  summary.train_s = job_.phase.ElapsedSeconds(std::min(job_.time.Now(), job_.phase.trained));
  summary.totals = job_.progress.totals();
  summary.loss = job_.progress.latest().loss;
  summary.staleness = job_.progress.staleness();
  summary.staleness_max = job_.progress.staleness_max();
  summary.staleness_bound = job_.watch.bound();
  summary.staleness_bound_changes = job_.watch.bound_changes();
  summary.slack_max = job_.progress.slack_max();
  summary.divergences = job_.watch.divergences();
  summary.worker_deaths = job_.workers.deaths;
  summary.samples_given_twice = job_.tasks ? job_.tasks->ranges().samples_given_twice() : 0;
  summary.worker_list = SummariseWorkers();
  summary.evaluations = job_.evaluations.all();
  const std::optional<wire::EvaluationReport>& last = job_.evaluations.last();
  if (last && last->has_top5_accuracy()) summary.top5_accuracy = last->top5_accuracy();
  if (last && last->has_map_50()) {
    ObjectsSummary& objects = summary.objects.emplace();
    objects.map_50 = last->map_50();
    if (last->has_mask_map()) objects.mask_map = last->mask_map();
    if (last->has_mask_map_50()) objects.mask_map_50 = last->mask_map_50();
  }
  if (job_.progress.energy().metered()) summary.energy = job_.progress.energy().View(summary.time_s);
  return summary;
}

std::vector<WorkerSummary> JobSummary::SummariseWorkers() const {
  std::vector<WorkerSummary> workers;
  // A process that was started again has another number and the same name.
  std::map<std::string, size_t> places;
  for (const auto& [id, worker] : job_.membership.workers()) {
    const auto [place, fresh] = places.emplace(worker.name, workers.size());
    if (fresh) workers.emplace_back();
    WorkerSummary& summary = workers[place->second];
    summary.name = worker.name;
    summary.slowdown = SlowdownOf(worker.name, job_.config.job.worker());
    summary.state = std::string(ToString(worker.state));
    Add(job_.progress.TotalsOf(id), summary.totals);
  }
  for (const auto& [name, totals] : job_.progress.earlier()) {
    const auto [place, fresh] = places.emplace(name, workers.size());
    if (fresh) {
      WorkerSummary& absent = workers.emplace_back();
      absent.name = name;
      absent.slowdown = SlowdownOf(name, job_.config.job.worker());
      absent.state = std::string(ToString(WorkerState::kLeft));
    }
    Add(totals, workers[place->second].totals);
  }
  if (job_.progress.forgotten().steps() > 0) {
    WorkerSummary& earlier = workers.emplace_back();
    earlier.name = kForgottenWorkers;
    earlier.state = std::string(ToString(WorkerState::kLeft));
    earlier.totals = job_.progress.forgotten();
  }
  return workers;
}

std::vector<ScrapeTarget> JobSummary::ScrapeTargets() const {
  std::vector<ScrapeTarget> targets;
  const auto add = [&targets](const std::string& address, const std::string& process, const char* role) {
    if (!address.empty() && AddressMistake(address).empty()) targets.push_back({address, process, role});
  };
  const auto add_server = [&](const std::string& name) {
    const auto known = job_.servers.metrics.find(name);
    if (known != job_.servers.metrics.end()) add(known->second, name, "server");
  };
  for (const auto& [id, server] : job_.membership.servers()) {
    if (server.state == ServerState::kLive) add_server(server.name);
  }
  for (const auto& [id, spare] : job_.Spares()) add_server(spare.name);
  for (const auto& [id, worker] : job_.membership.workers()) {
    if (worker.state == WorkerState::kLeft || worker.state == WorkerState::kDead) continue;
    if (const auto known = job_.workers.origins.find(id); known != job_.workers.origins.end()) {
      add(known->second.metrics, worker.name, "worker");
    }
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

MembersView JobSummary::Members() const {
  MembersView view;
  view.job_state = NameOf(job_.phase.state);
  for (size_t state = 0; state < kWorkerStates; ++state) {
    const auto which = static_cast<WorkerState>(state);
    view.workers[std::string(ToString(which))] = job_.membership.CountIn(which);
  }
  view.servers = {{"live", 0}, {"dead", 0}, {"left", 0}, {"joining", job_.moves.joining().size()}, {"backup", 0}};
  for (const auto& [id, server] : job_.membership.servers()) ++view.servers[std::string(ToString(server.state))];
  view.servers["backup"] = job_.backups.CountInStep();
  view.servers["catching_up"] = job_.backups.all().size() - job_.backups.CountInStep();
  view.workers_wanted = job_.config.job.cluster().workers();
  view.servers_wanted = job_.moves.ServersWanted();
  view.backups_wanted = job_.Replicated() ? job_.membership.places() : 0;
  view.samples_done = job_.SamplesDone();
  view.samples_total = job_.tasks ? job_.tasks->ranges().samples_total() : 0;
  view.events = job_.events.count();
  view.scrape_targets = ScrapeTargets();
  for (const auto& [id, worker] : job_.membership.workers()) {
    if (view.clocks.size() == MembersView::kNamedClocksMax) break;
    if (worker.state != WorkerState::kLive) continue;
    const wire::WorkerProgress* const progress = job_.progress.Of({id, worker.incarnation});
    view.clocks[worker.name] = progress != nullptr ? progress->clock() : worker.first_clock.value();
  }
  return view;
}

}  // namespace slackline::scheduler

#include "scheduler/control/job_summary.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "common/base/address.h"
#include "common/base/slowdown.h"
#include "common/job/push_samples.h"
#include "scheduler/base/job_state_name.h"
#include "scheduler/control/job_status.h"

namespace slackline::scheduler {
namespace {

// A name that no worker can have.
constexpr char kForgottenWorkers[] = "(earlier workers)";

// Returns a summary for each name, in the order in which the names were first heard of.
std::vector<WorkerSummary> SummariseWorkers(const RunningJob& job) {
  std::vector<WorkerSummary> workers;
  // A process that was started again has another number and the same name.
  std::map<std::string, size_t> places;
  for (const auto& [id, worker] : job.membership.workers()) {
    const auto [place, fresh] = places.emplace(worker.name, workers.size());
    if (fresh) workers.emplace_back();
    WorkerSummary& summary = workers[place->second];
    summary.name = worker.name;
    summary.slowdown = SlowdownOf(worker.name, job.config.job.worker());
    summary.state = std::string(ToString(worker.state));
    Add(job.progress.TotalsOf(id), summary.totals);
  }
  for (const auto& [name, totals] : job.progress.earlier()) {
    const auto [place, fresh] = places.emplace(name, workers.size());
    if (fresh) {
      WorkerSummary& absent = workers.emplace_back();
      absent.name = name;
      absent.slowdown = SlowdownOf(name, job.config.job.worker());
      absent.state = std::string(ToString(WorkerState::kLeft));
    }
    Add(totals, workers[place->second].totals);
  }
  if (job.progress.forgotten().steps() > 0) {
    WorkerSummary& earlier = workers.emplace_back();
    earlier.name = kForgottenWorkers;
    earlier.state = std::string(ToString(WorkerState::kLeft));
    earlier.totals = job.progress.forgotten();
  }
  return workers;
}

std::vector<ScrapeTarget> FindScrapeTargets(const RunningJob& job) {
  std::vector<ScrapeTarget> targets;
  const auto add = [&targets](const std::string& address, const std::string& process, const char* role) {
    if (!address.empty() && AddressMistake(address).empty()) targets.push_back({address, process, role});
  };
  const auto add_server = [&](const std::string& name) {
    const auto known = job.servers.metrics.find(name);
    if (known != job.servers.metrics.end()) add(known->second, name, "server");
  };
  for (const auto& [id, server] : job.membership.servers()) {
    if (server.state == ServerState::kLive) add_server(server.name);
  }
  for (const auto& [id, spare] : job.Spares()) add_server(spare.name);
  for (const auto& [id, worker] : job.membership.workers()) {
    if (worker.state == WorkerState::kLeft || worker.state == WorkerState::kDead) continue;
    if (const auto known = job.workers.origins.find(id); known != job.workers.origins.end()) {
      add(known->second.metrics, worker.name, "worker");
    }
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

}  // namespace

RunSummary MakeSummary(const RunningJob& job) {
  const job::Job& settings = job.config.job;
  RunSummary summary;
  summary.name = settings.name();
  summary.state = NameOf(job.phase.state);
  summary.reason = job.phase.state == wire::JOB_STARTING ? Missing(job) : job.phase.reason;
  summary.mode = absl::AsciiStrToLower(job::Consistency::Mode_Name(settings.consistency().mode()));
  summary.optimizer = job.Optimizer();
  summary.seed = settings.seed();
  summary.workers = settings.cluster().workers();
  summary.servers = settings.cluster().servers();
  summary.epochs = settings.training().epochs();
  summary.epochs_done = job.tasks ? job.tasks->ranges().epochs_done() : 0;
  summary.epoch_samples = job.shards.layout().train_samples * PassesOfPush(settings);
  summary.tokens_per_sample = settings.training().tokens_per_sample();
  summary.time_s = job.phase.ElapsedSeconds(job.time.Now());
  summary.train_s = job.phase.ElapsedSeconds(std::min(job.time.Now(), job.phase.trained));
  summary.totals = job.progress.totals();
  summary.loss = job.progress.latest().loss;
  summary.staleness = job.progress.staleness();
  summary.staleness_max = job.progress.staleness_max();
  summary.staleness_bound = job.watch.bound();
  summary.staleness_bound_changes = job.watch.bound_changes();
  summary.slack_max = job.progress.slack_max();
  summary.divergences = job.watch.divergences();
  summary.worker_deaths = job.workers.deaths;
  summary.samples_given_twice = job.tasks ? job.tasks->ranges().samples_given_twice() : 0;
  summary.worker_list = SummariseWorkers(job);
  summary.evaluations = job.evaluations.all();
  summary.metric = job.evaluations.JobMetric();
  const std::optional<wire::EvaluationReport>& last = job.evaluations.last();
  if (last && last->has_top5_accuracy()) summary.top5_accuracy = last->top5_accuracy();
  if (last && last->has_map_50()) {
    ObjectsSummary& objects = summary.objects.emplace();
    objects.map_50 = last->map_50();
    if (last->has_mask_map()) objects.mask_map = last->mask_map();
    if (last->has_mask_map_50()) objects.mask_map_50 = last->mask_map_50();
  }
  if (job.progress.energy().metered()) summary.energy = job.progress.energy().View(summary.time_s);
  return summary;
}

MembersView MakeMembersView(const RunningJob& job) {
  MembersView view;
  view.job_state = NameOf(job.phase.state);
  for (size_t state = 0; state < kWorkerStates; ++state) {
    const auto which = static_cast<WorkerState>(state);
    view.workers[std::string(ToString(which))] = job.membership.CountIn(which);
  }
  view.servers = {{"live", 0}, {"dead", 0}, {"left", 0}, {"joining", job.moves.joining().size()}, {"backup", 0}};
  for (const auto& [id, server] : job.membership.servers()) ++view.servers[std::string(ToString(server.state))];
  view.servers["backup"] = job.backups.CountInStep();
  view.servers["catching_up"] = job.backups.all().size() - job.backups.CountInStep();
  view.workers_wanted = job.config.job.cluster().workers();
  view.servers_wanted = job.moves.ServersWanted();
  view.backups_wanted = job.Replicated() ? job.membership.places() : 0;
  view.samples_done = job.SamplesDone();
  view.samples_total = job.tasks ? job.tasks->ranges().samples_total() : 0;
  view.events = job.events.count();
  view.scrape_targets = FindScrapeTargets(job);
  for (const auto& [id, worker] : job.membership.workers()) {
    if (view.clocks.size() == MembersView::kNamedClocksMax) break;
    if (worker.state != WorkerState::kLive) continue;
    const wire::WorkerProgress* const progress = job.progress.Of({id, worker.incarnation});
    view.clocks[worker.name] = progress != nullptr ? progress->clock() : worker.first_clock.value();
  }
  return view;
}

}  // namespace slackline::scheduler

#include "scheduler/service/scheduler_metrics.h"

#include "common/job/job_kinds.h"
#include "common/text/version_text.h"

namespace slackline::scheduler {
namespace {

constexpr char kClock[] = "slackline_scheduler_worker_clock_steps";
constexpr const char* kJobStates[] = {"starting", "training", "done", "failed", "stopped"};

// Reports carry totals.
void RaiseTo(Counter& counter, uint64_t total) {
  const double rise = static_cast<double>(total) - counter.value();
  if (rise > 0) counter.Add(rise);
}

}  // namespace

SchedulerMetrics::SchedulerMetrics(Metrics& metrics)
    : run_disk(metrics, "scheduler", "run"),
      checkpoint_disk(metrics, "scheduler", "checkpoints"),
      metrics_(metrics),
      live_workers_(metrics.gauge("slackline_scheduler_live_workers", "Workers that hold a clock and train")),
      live_servers_(metrics.gauge("slackline_scheduler_live_servers", "Servers that hold shards")),
      shard_moves_(metrics.counter("slackline_scheduler_shard_moves_total",
                                   "How often some shards of a server have changed hands")),
      epoch_(metrics.gauge("slackline_scheduler_epoch", "Epoch in progress, counted from 1")),
      loss_(metrics.gauge("slackline_scheduler_train_loss", "Mean loss on training images since the last report")),
      test_loss_(metrics.gauge("slackline_scheduler_test_loss",
                               "Mean loss on test images at the last evaluation; 0: none was measured")),
      learning_rate_(metrics.gauge("slackline_scheduler_learning_rate",
                                   "Learning rate at the last report: of the last push that names one, else by the "
                                   "schedule for a step of one batch; 0 before the first")),
      samples_per_second_(
          metrics.gauge("slackline_scheduler_samples_per_second", "Training images a second, of all workers")),
      slack_(metrics.gauge("slackline_scheduler_slack_clocks", "Fastest minus slowest live worker's clock")),
      staleness_mean_(metrics.gauge("slackline_scheduler_staleness_mean_versions",
                                    "Mean staleness of the pushes answered since the last report")),
      staleness_max_(metrics.gauge("slackline_scheduler_staleness_max_versions", "Largest staleness of any push")),
      gradient_norm_max_(
          metrics.gauge("slackline_scheduler_gradient_norm_max", "Largest norm of a gradient since the last report")),
      divergences_(metrics.counter("slackline_scheduler_divergence_total",
                                   "How often the loss or a gradient has left the band of the job's guard")),
      staleness_bound_(
          metrics.gauge("slackline_scheduler_staleness_bound_clocks", "Bound of ssp; 0 also in other modes")),
      staleness_bound_changes_(metrics.counter("slackline_scheduler_staleness_bound_changes_total",
                                               "Changes that the scheduler has made to the bound of ssp")),
      steps_(metrics.counter("slackline_scheduler_steps_total", "Steps of all workers")),
      samples_(metrics.counter("slackline_scheduler_samples_total", "Training images used, of all workers")),
      deaths_(metrics.counter("slackline_scheduler_worker_deaths_total", "Workers that died or were expelled")),
      given_twice_(metrics.counter("slackline_scheduler_samples_given_twice_total",
                                   "Samples of ranges given out again after a worker was lost")),
      checkpoints_(metrics.counter("slackline_scheduler_checkpoints_total", "Checkpoints of the job that are whole")),
      checkpoints_failed_(metrics.counter("slackline_scheduler_checkpoints_failed_total",
                                          "Checkpoints of the job that could not be made")),
      checkpoint_age_(metrics.gauge("slackline_scheduler_checkpoint_age_seconds",
                                    "Since the last checkpoint that is whole, at the last report; 0: there is none")),
      checkpoint_interval_(metrics.gauge("slackline_scheduler_checkpoint_interval_seconds",
                                         "From one checkpoint to the next, as the job has it; 0: none by time")),
      workers_wanted_(metrics.gauge("slackline_scheduler_wanted_workers", "Workers that the job begins with")),
      servers_wanted_(metrics.gauge("slackline_scheduler_wanted_servers", "Servers that the job is to have now")),
      backups_wanted_(metrics.gauge("slackline_scheduler_wanted_backups",
                                    "Backups of servers that the job is to have; 0 unless it is replicated")),
      samples_done_(metrics.gauge("slackline_scheduler_done_samples",
                                  "Images of all epochs that are done; falls where ranges are given out again")),
      samples_wanted_(metrics.gauge("slackline_scheduler_wanted_samples", "Images of all epochs")),
      events_(metrics.counter("slackline_scheduler_events_total", "Lines of events.log")) {
  MembersView none;
  none.job_state = "starting";
  for (const char* state : {"joining", "live", "standby", "left", "dead"}) none.workers[state] = 0;
  for (const char* state : {"live", "dead", "left", "joining", "backup", "catching_up"}) none.servers[state] = 0;
  Publish(none);
}

void SchedulerMetrics::Publish(const Report& report) {
  live_workers_.Set(static_cast<double>(report.live_workers));
  live_servers_.Set(static_cast<double>(report.live_servers));
  RaiseTo(shard_moves_, report.shard_moves);
  epoch_.Set(report.epoch);
  if (report.loss) loss_.Set(*report.loss);
  if (report.test_loss) test_loss_.Set(*report.test_loss);
  learning_rate_.Set(report.learning_rate);
  // A job without accuracies has no series of them.
  if (report.accuracy) {
    metrics_
        .gauge("slackline_scheduler_train_accuracy_ratio",
               "Share of training images classified right since the last report; absent until one is known")
        .Set(*report.accuracy);
  }
  if (report.test_accuracy) {
    metrics_
        .gauge("slackline_scheduler_test_accuracy_ratio",
               "Share of test images classified right at the last evaluation; of a job that finds objects, their mean "
               "average precision; absent until one is measured")
        .Set(*report.test_accuracy);
  }
  PublishNamed("slackline_scheduler_train_metric",
               "Figure that scripts report of training under a name of their own: mean of each worker's last one",
               report.train_values, train_names_);
  PublishNamed("slackline_scheduler_test_metric",
               "Figure of the last evaluation that had it, under the name that a script gave it", report.test_values,
               test_names_);
  samples_per_second_.Set(report.samples_per_second);
  slack_.Set(static_cast<double>(report.slack));
  staleness_mean_.Set(report.staleness_mean);
  staleness_max_.Set(static_cast<double>(report.staleness_max));
  gradient_norm_max_.Set(report.gradient_norm_max);
  RaiseTo(divergences_, report.divergences);
  if (report.staleness_bound) staleness_bound_.Set(static_cast<double>(*report.staleness_bound));
  RaiseTo(staleness_bound_changes_, report.staleness_bound_changes);
  RaiseTo(steps_, report.step);
  RaiseTo(samples_, report.samples);
  RaiseTo(deaths_, report.worker_deaths);
  RaiseTo(given_twice_, report.samples_given_twice);
  RaiseTo(checkpoints_, report.checkpoints);
  RaiseTo(checkpoints_failed_, report.checkpoints_failed);
  checkpoint_age_.Set(report.checkpoint_age_s.value_or(0));
}

void SchedulerMetrics::PublishNamed(const std::string& series, const std::string& help, const NamedValues& values,
                                    std::set<std::string>& names) {
  for (const auto& [name, value] : values) {
    if (names.size() >= kMetricNamesMax && !names.contains(name)) continue;
    names.insert(name);
    metrics_.gauge(series, help, {{"name", name}}).Set(value);
  }
}

void SchedulerMetrics::Publish(const MembersView& members) {
  for (const char* state : kJobStates) {
    metrics_.gauge("slackline_scheduler_job_state_info", "1 for the state that the job is in", {{"state", state}})
        .Set(members.job_state == state ? 1 : 0);
  }
  for (const auto& [state, count] : members.workers) {
    metrics_
        .gauge("slackline_scheduler_workers", "Workers by state; dead and left ones since the beginning",
               {{"state", state}})
        .Set(static_cast<double>(count));
  }
  for (const auto& [state, count] : members.servers) {
    metrics_
        .gauge("slackline_scheduler_servers",
               "Servers by state: with shards (live, dead, left), joining, backup (in step), catching_up (a backup)",
               {{"state", state}})
        .Set(static_cast<double>(count));
  }
  workers_wanted_.Set(static_cast<double>(members.workers_wanted));
  servers_wanted_.Set(static_cast<double>(members.servers_wanted));
  backups_wanted_.Set(static_cast<double>(members.backups_wanted));
  samples_done_.Set(static_cast<double>(members.samples_done));
  samples_wanted_.Set(static_cast<double>(members.samples_total));
  RaiseTo(events_, members.events);
  PublishClocks(members.clocks);
}

void SchedulerMetrics::PublishClocks(const std::map<std::string, uint64_t>& clocks) {
  for (const std::string& name : clocks_) {
    if (!clocks.contains(name)) metrics_.RemoveGauge(kClock, {{"worker", name}});
  }
  clocks_.clear();
  for (const auto& [name, clock] : clocks) {
    metrics_.gauge(kClock, "Clock of a live worker, of the first 64 by number", {{"worker", name}})
        .Set(static_cast<double>(clock));
    clocks_.insert(name);
  }
}

void SchedulerMetrics::SetJob(const job::Job& job, const std::string& run) {
  checkpoint_interval_.Set(job.checkpoint().every_s());
  metrics_
      .gauge("slackline_job_info", "1; the labels say which run this is, and what it trains",
             {{"run", run},
              {"mode", std::string(FactsOf(job.consistency()).name)},
              {"model", std::string(FactsOf(job.model()).name)},
              {"version", VersionNumber()}})
      .Set(1);
}

}  // namespace slackline::scheduler

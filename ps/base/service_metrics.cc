#include "ps/base/service_metrics.h"

#include <unistd.h>

#include <fstream>
#include <utility>

namespace slackline::ps {
namespace {

constexpr absl::StatusCode kRefusalCodes[] = {
    absl::StatusCode::kInvalidArgument,   absl::StatusCode::kOutOfRange, absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,    absl::StatusCode::kUnavailable};

constexpr std::pair<DiscardReason, const char*> kDiscardReasons[] = {
    {DiscardReason::kLineage, "restored"}, {DiscardReason::kLate, "late"}, {DiscardReason::kOutlier, "outlier"}};

constexpr char kDiscardedHelp[] =
    "Sub-pushes discarded for good, by reason: computed before a restore, late for their step, or an outlier";

}  // namespace

ServiceMetrics::ServiceMetrics(Metrics& metrics)
    : pushes_applied(metrics.counter("slackline_ps_pushes_applied_total", "Sub-pushes applied")),
      pushes_lost(metrics.counter("slackline_ps_pushes_lost_total", "Answered sub-pushes that a restore has lost")),
      pushes_uncompensated(
          metrics.counter("slackline_ps_pushes_uncompensated_total",
                          "Stale sub-pushes applied without delay compensation: their version was gone")),
      bytes_received(metrics.counter("slackline_ps_received_bytes_total", "Bytes of frames received")),
      bytes_sent(metrics.counter("slackline_ps_sent_bytes_total", "Bytes of frames sent")),
      pulls(metrics.counter("slackline_ps_pulls_total", "Pulls of a shard served")),
      pull_wait_seconds(metrics.histogram("slackline_ps_pull_wait_seconds",
                                          "From a pull's arrival at a shard until it was served",
                                          {0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30})),
      staleness(metrics.histogram("slackline_ps_staleness_versions", "Staleness of applied sub-pushes",
                                  {0, 1, 2, 4, 8, 16, 32, 64, 128})),
      apply_seconds(metrics.histogram("slackline_ps_apply_seconds", "Time of one optimizer step on one shard",
                                      {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1})),
      version_min(metrics.gauge("slackline_ps_version_min_updates", "Smallest version number over the shards")),
      version_max(metrics.gauge("slackline_ps_version_max_updates", "Largest version number over the shards")),
      shards(metrics.gauge("slackline_ps_shards", "Shards that this server holds, or follows as a backup")),
      weight_bytes(metrics.gauge("slackline_ps_weight_bytes", "Bytes of the weights of its shards, one version")),
      optimizer_bytes(metrics.gauge("slackline_ps_optimizer_bytes", "Bytes of the optimizer's arrays of its shards")),
      staging_bytes(metrics.gauge("slackline_ps_staging_bytes", "Bytes reserved for pushes not yet applied")),
      staging_bytes_max(
          metrics.gauge("slackline_ps_staging_max_bytes", "Bytes that may be reserved for pushes not yet applied")),
      waiting_pulls(metrics.gauge("slackline_ps_waiting_pulls", "Pulls that wait, over all shards")),
      pinned_versions(metrics.gauge("slackline_ps_pinned_versions", "Versions that somebody reads, over all shards")),
      reference_versions(
          metrics.gauge("slackline_ps_reference_versions", "Versions kept for delay compensation, over all shards")),
      prediction_steps(metrics.gauge("slackline_ps_prediction_steps",
                                     "Optimizer steps by which the weights that workers pull are ahead, with weight "
                                     "prediction: largest of its shards")),
      held_pushes(metrics.gauge("slackline_ps_held_pushes", "Sub-pushes held for their step, over all shards")),
      live_workers(metrics.gauge("slackline_ps_live_workers", "Workers in the installed set")),
      streams(metrics.gauge("slackline_ps_streams", "Open streams")),
      resident_bytes(metrics.gauge("slackline_ps_resident_bytes", "Resident memory of the process")),
      snapshots(metrics.counter("slackline_ps_snapshots_total", "Snapshots of shards written")),
      snapshots_failed(metrics.counter("slackline_ps_snapshots_failed_total", "Snapshots that could not be written")),
      checkpoints(metrics.counter("slackline_ps_checkpoints_total", "This server's parts of checkpoints written")),
      checkpoints_failed(metrics.counter("slackline_ps_checkpoints_failed_total",
                                         "This server's parts of checkpoints that could not be written")),
      snapshot_seconds(metrics.histogram("slackline_ps_snapshot_seconds", "Time to write one snapshot of one shard",
                                         {0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})),
      snapshot_taken(metrics.gauge("slackline_ps_snapshot_timestamp_seconds",
                                   "When the oldest of the shards' newest snapshots was taken, in Unix time; 0: none")),
      snapshot_bytes(metrics.gauge("slackline_ps_snapshot_bytes", "Bytes of the newest snapshots of all shards")),
      snapshot_interval_seconds(
          metrics.gauge("slackline_ps_snapshot_interval_seconds",
                        "From one snapshot of a shard to the next, as the job has it; 0: this server keeps none")),
      checkpoint_seconds(metrics.histogram("slackline_ps_checkpoint_seconds",
                                           "Time to write this server's part of one checkpoint, from its first cut on",
                                           {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300})),
      snapshot_disk(metrics, "ps", "snapshots"),
      checkpoint_disk(metrics, "ps", "checkpoints"),
      backup_in_step(metrics.gauge("slackline_ps_backup_in_step", "1: a backup has all that this server has answered")),
      replication_lag_items(metrics.gauge("slackline_ps_replication_lag_items",
                                          "What has happened to shards and the backup has not handled yet")),
      replication_lag_seconds(
          metrics.gauge("slackline_ps_replication_lag_seconds", "How long the oldest answer waits for the backup")),
      metrics_(metrics) {
  for (const absl::StatusCode code : kRefusalCodes) {
    refused_[code] = &metrics.counter("slackline_ps_pushes_refused_total", "Frames and pushes refused",
                                      {{"code", absl::StatusCodeToString(code)}});
  }
  for (const auto& [reason, name] : kDiscardReasons) {
    discarded_[reason] = &metrics.counter("slackline_ps_pushes_discarded_total", kDiscardedHelp, {{"reason", name}});
  }
}

void ServiceMetrics::Refused(absl::StatusCode code) {
  if (auto counter = refused_.find(code); counter != refused_.end()) counter->second->Add();
}

void ServiceMetrics::Discarded(DiscardReason reason, const std::string& worker) {
  if (auto counter = discarded_.find(reason); counter != discarded_.end()) counter->second->Add();
  if (reason != DiscardReason::kLate && reason != DiscardReason::kOutlier) return;
  absl::MutexLock lock(&mutex_);
  OfWorker& series = Of(worker);
  (reason == DiscardReason::kLate ? series.late : series.quarantined).Add();
}

void ServiceMetrics::Served(absl::Duration waited) {
  pulls.Add();
  pull_wait_seconds.Observe(absl::ToDoubleSeconds(waited));
}

void ServiceMetrics::Awaited(const std::string& worker, absl::Duration waited) {
  absl::MutexLock lock(&mutex_);
  Of(worker).awaited_seconds.Add(absl::ToDoubleSeconds(waited));
}

ServiceMetrics::OfWorker& ServiceMetrics::Of(const std::string& worker) {
  if (const auto found = workers_.find(worker); found != workers_.end()) return found->second;
  const std::string& name = workers_.size() < kNamedWorkersMax ? worker : kOtherWorkers;
  if (const auto found = workers_.find(name); found != workers_.end()) return found->second;
  const Metrics::Labels labels = {{"worker", name}};
  return workers_
      .insert(
          {name,
           {metrics_.counter("slackline_ps_pushes_late_total",
                             "Sub-pushes discarded because their step was closed, by worker", labels),
            metrics_.counter("slackline_ps_pushes_quarantined_total",
                             "Sub-pushes discarded because their norm was far above the others', by worker", labels),
            metrics_.counter("slackline_ps_awaited_seconds_total",
                             "Time that pulls of others waited until this worker's push let them go", labels)}})
      .first->second;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace slackline::ps

#include "ps/service/service_metrics.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace slackline::ps {
namespace {

constexpr absl::StatusCode kRefusalCodes[] = {
    absl::StatusCode::kInvalidArgument,   absl::StatusCode::kOutOfRange, absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,    absl::StatusCode::kUnavailable};

}  // namespace

ServiceMetrics::ServiceMetrics(Metrics& metrics)
    : pushes_applied(metrics.counter("slackline_ps_pushes_applied_total", "Sub-pushes applied")),
      pushes_discarded(metrics.counter("slackline_ps_pushes_discarded_total", "Sub-pushes discarded for good")),
      pushes_lost(metrics.counter("slackline_ps_pushes_lost_total", "Answered sub-pushes that a restore has lost")),
      pushes_uncompensated(
          metrics.counter("slackline_ps_pushes_uncompensated_total",
                          "Stale sub-pushes applied without delay compensation: their version was gone")),
      bytes_received(metrics.counter("slackline_ps_received_bytes_total", "Bytes of frames received")),
      bytes_sent(metrics.counter("slackline_ps_sent_bytes_total", "Bytes of frames sent")),
      staleness(metrics.histogram("slackline_ps_staleness_versions", "Staleness of applied sub-pushes",
                                  {0, 1, 2, 4, 8, 16, 32, 64, 128})),
      apply_seconds(metrics.histogram("slackline_ps_apply_seconds", "Time of one optimizer step on one shard",
                                      {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1})),
      version_min(metrics.gauge("slackline_ps_version_min", "Smallest version number over the shards")),
      version_max(metrics.gauge("slackline_ps_version_max", "Largest version number over the shards")),
      staging_bytes(metrics.gauge("slackline_ps_staging_bytes", "Bytes reserved for pushes not yet applied")),
      waiting_pulls(metrics.gauge("slackline_ps_waiting_pulls", "Pulls that wait, over all shards")),
      pinned_versions(metrics.gauge("slackline_ps_pinned_versions", "Versions that somebody reads, over all shards")),
      reference_versions(
          metrics.gauge("slackline_ps_reference_versions", "Versions kept for delay compensation, over all shards")),
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
      backup_in_step(metrics.gauge("slackline_ps_backup_in_step", "1: a backup has all that this server has answered")),
      metrics_(metrics) {
  for (const absl::StatusCode code : kRefusalCodes) {
    refused_[code] = &metrics.counter("slackline_ps_pushes_refused_total", "Frames and pushes refused",
                                      {{"code", absl::StatusCodeToString(code)}});
  }
}

void ServiceMetrics::Refused(absl::StatusCode code) {
  if (auto counter = refused_.find(code); counter != refused_.end()) counter->second->Add();
}

void ServiceMetrics::Late(const std::string& worker) {
  CountByWorker("slackline_ps_pushes_late_total", "Sub-pushes discarded because their step was closed, by worker",
                worker);
}

void ServiceMetrics::Quarantined(const std::string& worker) {
  CountByWorker("slackline_ps_pushes_quarantined_total",
                "Sub-pushes discarded because their norm was far above the others', by worker", worker);
}

void ServiceMetrics::CountByWorker(const char* name, const char* help, const std::string& worker) {
  absl::MutexLock lock(&mutex_);
  if (named_.size() < kNamedWorkersMax) named_.insert(worker);
  metrics_.counter(name, help, {{"worker", named_.contains(worker) ? worker : kOtherWorkers}}).Add();
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace slackline::ps

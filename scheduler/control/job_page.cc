#include "scheduler/control/job_page.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "common/job/job_kinds.h"
#include "common/metrics/measured.h"
#include "scheduler/base/job_state_name.h"
#include "scheduler/control/job_status.h"
#include "scheduler/status/status_limits.h"
#include "scheduler/watch/totals.h"

namespace slackline::scheduler {
namespace {

constexpr uint64_t kBytesPerElement = 4;

double SecondsSince(absl::Time then, absl::Time now) { return std::max(0.0, absl::ToDoubleSeconds(now - then)); }

void AddStaleness(const StalenessCounts& counts, wire::JobAsynchrony& out) {
  for (size_t bucket = 0; bucket < counts.used(); ++bucket) {
    wire::StalenessBucket& one = *out.add_staleness();
    one.set_from(StalenessCounts::StalenessOf(bucket));
    const bool last = bucket + 1 >= StalenessCounts::kBuckets;
    one.set_to(last ? std::numeric_limits<uint64_t>::max() : StalenessCounts::StalenessOf(bucket + 1) - 1);
    one.set_answers(counts.InBucket(bucket));
  }
}

// Of those that are many, who is shown: who is there, then who was lost lately, then the others.
int RankOf(const wire::WorkerView& worker) {
  if (worker.state() == "live" || worker.state() == "joining") return 0;
  if (worker.state() == "dead" && worker.silent_s() < kLostForS) return 1;
  return worker.state() == "standby" ? 2 : 3;
}

void Keep(std::vector<wire::WorkerView> workers, wire::JobStatus& out) {
  if (workers.size() > kWorkersShown) {
    std::stable_sort(workers.begin(), workers.end(),
                     [](const auto& one, const auto& other) { return RankOf(one) < RankOf(other); });
    workers.resize(kWorkersShown);
    std::sort(workers.begin(), workers.end(),
              [](const auto& one, const auto& other) { return one.worker() < other.worker(); });
  }
  for (wire::WorkerView& worker : workers) *out.add_workers() = std::move(worker);
}

void ViewProgress(const RunningJob& job, absl::Time now, wire::JobProgress& out) {
  const ProgressReport& latest = job.progress.latest();
  const double rate = job.phase.Ended() ? 0 : job.progress.SamplesPerSecond(now);
  const uint64_t done = job.SamplesDone(), total = job.tasks ? job.tasks->ranges().samples_total() : 0;
  out.set_epoch(job.EpochInProgress());
  out.set_epochs(job.config.job.training().epochs());
  out.set_samples_done(done);
  out.set_samples_total(total);
  CopyFigures(job.progress.totals(), out);
  out.set_samples_per_second(rate);
  out.set_tokens_per_sample(job.config.job.training().tokens_per_sample());
  out.set_elapsed_s(job.phase.ElapsedSeconds(now));
  if (const auto left = job.SecondsLeft(now)) out.set_seconds_left(*left);
  if (latest.loss) out.set_loss(*latest.loss);
  if (latest.accuracy) out.set_train_accuracy(*latest.accuracy);
  out.set_test_metric(job.evaluations.Metric());
  if (const auto& last = job.evaluations.last()) {
    if (const auto accuracy = TestAccuracyOf(*last)) out.set_test_accuracy(*accuracy);
    if (const auto loss = TestLossOf(*last)) out.set_test_loss(*loss);
    out.set_test_epoch(last->epoch());
    *out.mutable_test_values() = last->values();
  }
  out.set_optimizer(job.Optimizer());
  *out.mutable_metric() = job.evaluations.JobMetric();
  AddNamedValues(latest.values, out.mutable_train_values());
  out.set_divergences(job.watch.divergences());
  if (job.watch.diverged_at()) out.set_diverged_ago_s(SecondsSince(*job.watch.diverged_at(), now));
}

void ViewAsynchrony(const RunningJob& job, wire::JobAsynchrony& out) {
  const ProgressReport& latest = job.progress.latest();
  out.set_mode(absl::AsciiStrToLower(job::Consistency::Mode_Name(job.config.job.consistency().mode())));
  if (job.watch.bound()) out.set_slack_bound(*job.watch.bound());
  out.set_slack(latest.slack);
  out.set_slack_max(job.progress.slack_max());
  out.set_staleness_mean(latest.staleness_mean);
  out.set_staleness_max(job.progress.staleness_max());
  AddStaleness(job.progress.staleness(), out);
  CopyFigures(job.progress.totals(), out);
}

wire::WorkerView ViewWorker(const RunningJob& job, WorkerId id, const Membership::Worker& worker, absl::Time now) {
  wire::WorkerView out;
  out.set_worker(id.value());
  out.set_name(worker.name);
  out.set_state(std::string(ToString(worker.state)));
  out.set_reason(worker.reason);
  if (const auto known = job.workers.origins.find(id); known != job.workers.origins.end()) {
    const WorkerOrigin& origin = known->second;
    out.set_pid(origin.pid);
    out.set_host(origin.host);
    out.set_topology(origin.topology);
    out.set_metrics_address(origin.metrics);
    if (origin.group < static_cast<uint32_t>(job.config.job.worker().groups_size())) {
      *out.mutable_devices() = job.config.job.worker().groups(static_cast<int>(origin.group)).devices();
    }
  }
  out.set_silent_s(SecondsSince(worker.heard, now));
  const Holder holder = {id, worker.incarnation};
  const wire::WorkerProgress* progress = job.progress.Of(holder);
  if (progress != nullptr) CopyFigures(*progress, out);
  // Samples are those of all lives.
  out.set_samples(job.progress.TotalsOf(id).samples());
  // Until it has trained, a worker stands where its life began.
  out.set_clock(std::max(out.clock(), worker.first_clock.value()));
  if (progress == nullptr) return out;
  const double seconds = progress->compute_seconds() + progress->wait_seconds();
  out.set_samples_per_second(worker.state == WorkerState::kLive ? job.progress.SamplesPerSecond(holder, now) : 0);
  out.set_idle_s(static_cast<double>(progress->idle_ms()) / 1000);
  out.set_waiting(worker.state == WorkerState::kLive && progress->waiting());
  out.set_wait_fraction(seconds > 0 ? progress->wait_seconds() / seconds : 0);
  if (progress->staleness_answers() > 0) {
    out.set_staleness_mean(static_cast<double>(progress->staleness_sum()) /
                           static_cast<double>(progress->staleness_answers()));
  }
  return out;
}

void ViewWorkers(const RunningJob& job, absl::Time now, wire::JobStatus& out) {
  wire::WorkerCounts& counts = *out.mutable_worker_counts();
  counts.set_total(job.membership.last_worker().value());
  counts.set_joining(static_cast<uint32_t>(job.membership.CountIn(WorkerState::kJoining)));
  counts.set_live(static_cast<uint32_t>(job.membership.CountLive()));
  counts.set_standby(static_cast<uint32_t>(job.membership.CountIn(WorkerState::kStandby)));
  counts.set_left(static_cast<uint32_t>(job.membership.CountIn(WorkerState::kLeft)));
  counts.set_dead(static_cast<uint32_t>(job.membership.CountIn(WorkerState::kDead)));
  std::vector<wire::WorkerView> workers;
  for (const auto& [id, worker] : job.membership.workers()) {
    wire::WorkerView view = ViewWorker(job, id, worker, now);
    if (worker.state == WorkerState::kLive) {
      counts.set_clock_min(counts.has_clock_min() ? std::min(counts.clock_min(), view.clock()) : view.clock());
      counts.set_clock_max(std::max(counts.clock_max(), view.clock()));
    }
    workers.push_back(std::move(view));
  }
  // Clocks come with heartbeats, which are not of one moment; nobody is further ahead than the mode lets it be.
  uint64_t slack_max = job.watch.bound().value_or(std::numeric_limits<uint64_t>::max());
  if (FactsOf(job.config.job.consistency()).in_lockstep()) slack_max = 0;
  for (wire::WorkerView& view : workers) {
    if (view.state() == "live") view.set_slack(std::min(view.clock() - counts.clock_min(), slack_max));
  }
  Keep(std::move(workers), out);
}

void ViewServer(const RunningJob& job, ServerId id, const Membership::Server& server, absl::Time now,
                wire::ServerView& out) {
  out.set_server(id.value());
  out.set_name(server.name);
  const bool live = server.state == ServerState::kLive;
  out.set_state(live && job.moves.Draining(id) ? "draining" : std::string(ToString(server.state)));
  out.set_reason(server.reason);
  out.set_address(server.address);
  out.set_silent_s(SecondsSince(server.heard, now));
  out.set_durable(job.servers.durable.contains(id));
  out.set_wants_backup(job.Replicated());
  if (const wire::LocalAddress* local = job.shards.LocalOf(id)) {
    out.set_host(local->machine());
    out.set_topology(local->topology());
  }
  for (const ShardPlace& place : job.shards.places()) {
    if (place.server != id) continue;
    out.set_shards(out.shards() + 1);
    out.set_bytes(out.bytes() + place.size() * kBytesPerElement);
  }
  const auto progress = job.servers.progress.find(id);
  if (progress == job.servers.progress.end()) return;
  CopyFigures(progress->second, out);
  out.set_snapshot_error(progress->second.snapshot_error());
  if (const auto rate = job.servers.version_rates.find(id); live && rate != job.servers.version_rates.end()) {
    out.set_steps_per_second(rate->second.per_second);
  }
}

void ViewServers(const RunningJob& job, absl::Time now, wire::JobStatus& out) {
  std::map<uint32_t, wire::ServerView*> present;
  for (const auto& [id, server] : job.membership.servers()) {
    wire::ServerView& view = *out.add_servers();
    ViewServer(job, id, server, now, view);
    present[id.value()] = &view;
  }
  wire::GetStatusReply others;
  job.backups.Fill(now, others);
  job.moves.Fill(now, others);
  for (const wire::MemberStatus& member : others.members()) {
    const auto primary = present.find(member.member());
    if (member.backup() && primary != present.end()) {
      wire::BackupView& backup = *primary->second->mutable_backup();
      backup.set_name(member.name());
      backup.set_address(member.address());
      backup.set_in_step(member.state() == "in step");
      backup.set_silent_s(static_cast<double>(member.silent_ms()) / 1000);
      if (const auto& local = job.backups.all().at(ServerId(member.member())).local; local) {
        backup.set_host(local->machine());
        backup.set_topology(local->topology());
      }
    } else if (!member.backup()) {
      wire::ServerView& view = *out.add_servers();
      view.set_server(member.member());
      view.set_name(member.name());
      view.set_state(member.state());
      view.set_reason(member.reason());
      view.set_address(member.address());
      view.set_silent_s(static_cast<double>(member.silent_ms()) / 1000);
    }
  }
}

void ViewShards(const RunningJob& job, wire::JobStatus& out) {
  out.set_shards_total(static_cast<uint32_t>(job.shards.places().size()));
  for (const ShardPlace& place : job.shards.places()) {
    if (out.shards_size() >= static_cast<int>(kShardsShown)) break;
    wire::ShardView& shard = *out.add_shards();
    shard.set_shard(place.shard.value());
    shard.set_server(place.server.value());
    shard.set_server_name(job.moves.NameOf(place.server));
    shard.set_bytes(place.size() * kBytesPerElement);
    if (const auto backup = job.backups.all().find(place.server); backup != job.backups.all().end()) {
      shard.set_replica(backup->second.name);
      shard.set_replica_in_step(job.backups.InStep(place.server));
    }
  }
}

}  // namespace

wire::JobStatus MakePage(const RunningJob& job) {
  const absl::Time now = job.time.Now();
  wire::JobStatus out;
  out.set_job(absl::StrFormat("%016x", job.config.id.value()));
  out.set_name(job.config.job.name());
  out.set_state(NameOf(job.phase.state));
  out.set_reason(job.phase.state == wire::JOB_STARTING ? Missing(job) : job.phase.reason);
  out.set_run_folder(job.config.run_folder);
  out.set_report_every_ms(job.config.job.output().report_every_ms());
  ViewProgress(job, now, *out.mutable_progress());
  job.evaluations.FillCurve(kCurvePointsMax, *out.mutable_curve());
  ViewAsynchrony(job, *out.mutable_asynchrony());
  ViewWorkers(job, now, out);
  ViewServers(job, now, out);
  ViewShards(job, out);
  wire::GetStatusReply filled;
  job.checkpoints.Fill(now, filled);
  job.moves.Fill(now, filled);
  out.set_moving(filled.moving());
  if (job.progress.energy().metered())
    *out.mutable_energy() = job.progress.energy().View(job.phase.ElapsedSeconds(now));
  wire::JobCheckpoints& checkpoints = *out.mutable_checkpoints();
  checkpoints.set_in_progress(filled.checkpoint_in_progress());
  checkpoints.set_whole(filled.checkpoint());
  checkpoints.set_failed(filled.checkpoint_failed());
  checkpoints.set_error(filled.checkpoint_error());
  checkpoints.set_folder(filled.checkpoint_folder());
  checkpoints.set_age_s(filled.checkpoint_age_seconds());
  checkpoints.set_epochs(job.checkpoints.epochs());
  return out;
}

}  // namespace slackline::scheduler

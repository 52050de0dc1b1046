#include "scheduler/control/job_reports.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/optimizer_config.h"
#include "common/job/push_samples.h"

namespace slackline::scheduler {
namespace {

// Each epoch of a job gets a line if the job has so many at most. In longer jobs, lines have this distance.
constexpr uint32_t kEpochsToldMax = 50;
constexpr absl::Duration kEpochToldEvery = absl::Seconds(5);

// A rate of versions is the mean over at least so long.
constexpr absl::Duration kVersionRateOver = absl::Seconds(1);

void AddLossEvent(RunningJob& job, const Holder& holder, uint64_t lost, absl::string_view when) {
  job.events.Add(absl::StrCat(lost, " answered sub-pushes of ", job.NameOf(holder.worker), " were lost", when,
                              ": shards went on from snapshots that did not have them yet. Their samples count as "
                              "trained, and are not trained again"));
}

void HearWait(RunningJob& job, const Holder& holder, const wire::WorkerProgress& progress, absl::Time now) {
  const bool waits = !progress.waits_for().empty();
  if (!job.room.Hear(holder, waits, now)) return;
  job.events.Add(waits ? absl::StrCat("warning: ", job.NameOf(holder.worker), " waits for ", progress.waits_for())
                       : absl::StrCat(job.NameOf(holder.worker), " waits no more"));
}

void HearSnapshots(RunningJob& job, ServerId id, const wire::ServerProgress& now) {
  const auto before = job.servers.progress.find(id);
  const bool failed = before != job.servers.progress.end() && !before->second.snapshot_error().empty();
  const std::string who = Called("server", job.membership.servers().at(id).name);
  if (!failed && !now.snapshot_error().empty()) {
    job.events.Add(absl::StrCat(
        "warning: ", who,
        " writes no snapshots, and training goes on without: when it dies, more is lost: ", now.snapshot_error()));
  } else if (failed && now.snapshot_error().empty()) {
    job.events.Add(absl::StrCat(who, " writes snapshots again"));
  }
}

void HearVersions(RunningJob& job, ServerId server, const wire::ServerProgress& progress, absl::Time now) {
  const uint64_t version = progress.version_max();
  const auto [found, first] = job.servers.version_rates.try_emplace(server, ServersSeen::VersionRate{now, version, 0});
  ServersSeen::VersionRate& rate = found->second;
  if (first || now - rate.since < kVersionRateOver) return;
  const double steps = version > rate.version ? static_cast<double>(version - rate.version) : 0;
  const double seconds = absl::ToDoubleSeconds(now - rate.since);
  rate = {now, version, steps / seconds};
}

}  // namespace

void HearServer(RunningJob& job, ServerId server, const wire::ServerProgress& progress, absl::Time now) {
  HearSnapshots(job, server, progress);
  HearVersions(job, server, progress, now);
  job.servers.progress[server] = progress;
}

void TrainsNoMore(RunningJob& job, const Holder& holder) {
  job.progress.Left(holder);
  if (const uint64_t lost = job.progress.TakeUnreported(holder); lost > 0)
    AddLossEvent(job, holder, lost, ", after its last step");
}

void NoteRestored(RunningJob& job, ServerId server, const wire::InstallShardsReply& reply) {
  for (const wire::RestoredWorker& restored : reply.restored()) {
    const Holder holder = {WorkerId(restored.worker()), Incarnation(restored.incarnation())};
    job.progress.Restored(server, holder, restored, job.time.Now() + 2 * job.config.timeouts.heartbeat);
    // The others report it themselves with their next step; or this does when they leave without one.
    const auto worker = job.membership.workers().find(holder.worker);
    const bool trains = worker != job.membership.workers().end() && worker->second.incarnation == holder.incarnation &&
                        job.Trains(worker->second) && job.phase.trained == absl::InfiniteFuture();
    if (!trains) TrainsNoMore(job, holder);
  }
}

void FollowTraining(RunningJob& job, absl::Time now) {
  if (!job.tasks) return;
  job.tasks->Reached({.samples_trained = job.SamplesDone(),
                      .samples_applied = job.progress.totals().samples_applied() / PassesOfPush(job.config.job)});
  const uint32_t before = job.epoch_book.epochs();
  const uint32_t over = job.EpochsTrained();
  if (over <= before) return;
  const EnergyLedger& energy = job.progress.energy();
  job.epoch_book.Over(over, {.time_s = job.phase.ElapsedSeconds(now),
                             .totals = job.progress.totals(),
                             .joules = energy.metered() ? std::optional(energy.total_joules()) : std::nullopt});
  const uint32_t epochs = job.config.job.training().epochs();
  for (uint32_t epoch = before + 1; epoch <= over; ++epoch) {
    if (epochs > kEpochsToldMax && epoch != epochs && now - job.epoch_told <= kEpochToldEvery) continue;
    job.events.Add(absl::StrCat("epoch ", epoch, " of ", epochs, " is complete"));
    job.epoch_told = now;
  }
}

absl::Status HearWorker(RunningJob& job, const Holder& holder, const wire::WorkerProgress* progress, absl::Time now) {
  if (absl::Status alive = job.membership.HeartbeatWorker(holder.worker, holder.incarnation, now); !alive.ok()) {
    return alive;
  }
  const bool trains = job.Trains(job.membership.workers().at(holder.worker));
  const uint64_t lost_before = job.progress.TotalsOf(holder.worker).pushes_lost();
  if (progress != nullptr) {
    job.progress.Heard(holder, *progress, trains, now);
    FollowTraining(job, now);
    HearWait(job, holder, *progress, now);
  }
  const state::Totals totals = job.progress.TotalsOf(holder.worker);
  if (totals.pushes_lost() > lost_before) AddLossEvent(job, holder, totals.pushes_lost() - lost_before, "");
  job.batch_sizes.Observe(holder.worker, {.samples = totals.samples(), .seconds = totals.compute_seconds()});
  return absl::OkStatus();
}

void AddReport(RunningJob& job, absl::Time now) {
  const ProgressReport& progress = job.progress.Report();
  Report report;
  report.time_s = job.phase.ElapsedSeconds(now);
  report.epoch = job.EpochInProgress();
  report.step = progress.totals.steps();
  report.samples = progress.totals.samples();
  report.loss = progress.loss;
  report.accuracy = progress.accuracy;
  report.train_values = progress.values;
  job.evaluations.Report(report);
  const OptimizerConfig optimizer = MakeOptimizerConfig(job.config.job, job.shards.layout().train_samples);
  report.learning_rate =
      progress.learning_rate.value_or(LearningRate(optimizer, progress.totals.samples_applied(), /*batches=*/1));
  report.samples_per_second = job.progress.SamplesPerSecond(now);
  report.staleness_mean = progress.staleness_mean;
  report.staleness = progress.staleness;
  report.staleness_max = progress.staleness_max;
  report.slack = progress.slack;
  report.staleness_bound = job.watch.bound();
  report.staleness_bound_changes = job.watch.bound_changes();
  report.gradient_norm_max = progress.gradient_norm_max;
  report.divergences = job.watch.divergences();
  report.live_workers = job.membership.CountLive();
  for (const auto& [id, server] : job.membership.servers()) report.live_servers += server.state == ServerState::kLive;
  report.shard_moves = job.moves.made();
  report.worker_deaths = job.workers.deaths;
  report.checkpoints = job.checkpoints.made();
  report.checkpoints_failed = job.checkpoints.failures();
  if (job.checkpoints.whole() > 0) report.checkpoint_age_s = absl::ToDoubleSeconds(job.checkpoints.Age(now));
  report.samples_given_twice = job.tasks->ranges().samples_given_twice();
  job.reports.push_back(report);
  job.last_report = now;
}

void NoteEvaluation(RunningJob& job, const wire::EvaluationReport& report, const EvaluationSummary& begun,
                    const std::string& by) {
  Evaluations::Judgement judged = job.evaluations.Note(report, begun, by);
  job.epoch_book.Evaluated(report, /*alone=*/job.membership.CountLive() <= 1);
  job.events.Add(std::move(judged.told));
  if (judged.warning) job.events.Add(*std::move(judged.warning));
  if (judged.best) job.checkpoints.KeepBest(job.evaluations.all().back());
  if (report.final() || job.tasks->ranges().cut_short() || !judged.ends) return;
  job.events.Add(absl::StrCat("training ends early, after what is under way: ", *judged.ends));
  job.tasks->EndEarly();
}

void NoteObserved(RunningJob& job, wire::EvaluationReport report, uint64_t samples_applied) {
  if (job.phase.state != wire::JOB_TRAINING || !job.tasks) return;
  EvaluationSummary begun = job.StandingAt(job.time.Now());
  // Workers say late what they have trained; what they have said of discarded pushes is all that is known of those.
  begun.samples += samples_applied - std::min(samples_applied, begun.samples_applied);
  begun.samples_applied = std::max(samples_applied, begun.samples_applied);
  report.set_epoch(job.EpochsTrained());
  report.set_at_samples(std::max<uint64_t>(1, begun.samples_applied));
  NoteEvaluation(job, report, begun, "observed");
  AddReport(job, job.time.Now());
}

}  // namespace slackline::scheduler

// Watching: what follows from the time, and from what members report.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_kinds.h"
#include "common/job/optimizer_config.h"
#include "common/job/push_samples.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/job_view.h"

namespace slackline::scheduler {
namespace {

// Between two ticks, which come every T / 2 or more often: more than that is no delay any more, ...
constexpr int kSleepHeartbeats = 4;
// ... and where 3 T of silence are death, this is not: a sleep of less, and T between heartbeats, are less than that.
constexpr int kSleepHeartbeatsReplicated = 1;
// Names in one message.
constexpr size_t kNamesMax = 10;

absl::Duration FromMilliseconds(double milliseconds) { return absl::Milliseconds(std::clamp(milliseconds, 0.0, 1e12)); }

// The first snapshot of a shard is made as soon as it has weights; in so long a slow disk takes a large one.
constexpr absl::Duration kFirstSnapshotMax = absl::Seconds(60);

// Of so many epochs each is worth a line; of more, one now and then.
constexpr uint32_t kEpochsToldMax = 50;
constexpr absl::Duration kEpochToldEvery = absl::Seconds(5);

// A rate of versions is the mean over at least so long.
constexpr absl::Duration kVersionRateOver = absl::Seconds(1);

}  // namespace

void JobCourse::Tick() {
  const absl::Time now = job_.time.Now();
  ForgiveOwnSleep(now);
  // Before: where both are silent, it may be this machine's network.
  if (!job_.phase.Ended()) {
    if (const auto never = job_.backups.NeverBacked(job_.Facts())) End(wire::JOB_FAILED, *never);
    job_.backups.Watch(job_.Facts());
  }
  MembershipActions actions;
  job_.membership.Tick(now, actions);
  Apply(actions);
  ForgetDeparted();
  if (job_.phase.Ended()) return PartTick(now);
  if (job_.phase.state == wire::JOB_STARTING) {
    if (now - job_.phase.created <= job_.config.timeouts.startup) return;
    return End(wire::JOB_FAILED, absl::StrCat("the job could not start within ", Readable(job_.config.timeouts.startup),
                                              ": it ", JobView(job_).Missing()));
  }
  FailIfServersStayAway(now);
  job_.moves.Tick(job_.checkpoints.in_progress(), job_.Facts());
  ExpelStalled(now);
  if (job_.phase.Ended()) return;
  FailIfDeserted(now);
  FailIfNoRoom(now);
  WatchDivergence();
  if (job_.phase.Ended()) return;
  WatchBound(now);
  WatchSnapshots(now);
  WatchCheckpoints(now);
  if (now - job_.last_report >= absl::Milliseconds(job_.config.job.output().report_every_ms())) AddReport(now);
}

void JobCourse::ForgiveOwnSleep(absl::Time now) {
  const absl::Duration gap = now - job_.last_tick;
  job_.last_tick = now;
  if (gap <= (job_.Replicated() ? kSleepHeartbeatsReplicated : kSleepHeartbeats) * job_.config.timeouts.heartbeat)
    return;
  // Not all of it: where every tick is that late, the dead must be found nevertheless.
  const absl::Duration slept = job_.Replicated() ? gap - job_.config.timeouts.heartbeat / 2 : gap;
  job_.membership.Overslept(slept, now);
  job_.stalls.Overslept(slept);
  job_.workers.claims.Clear();
  for (auto& [server, since] : job_.servers.lost_since) since += slept;
  for (auto& [server, spare] : job_.Spares()) spare.heard = std::min(now, spare.heard + slept);
  if (job_.workers.deserted_since) *job_.workers.deserted_since += slept;
  if (gap <= kSleepHeartbeats * job_.config.timeouts.heartbeat) return;  // nothing to speak of
  job_.events.Add(absl::StrCat("the scheduler itself stood still for ", Readable(gap),
                               "; the pause does not count as silence of workers and servers"));
}

void JobCourse::ExpelStalled(absl::Time now) {
  MembershipActions actions;
  std::optional<std::string> in_vain;
  const auto expel = [&](const Holder& holder, const std::string& name, const std::string& reason) {
    job_.membership.Expel(holder.worker, holder.incarnation, reason, actions);
    if (const auto why = job_.stalls.Expelled(name, job_.progress.totals().samples())) {
      in_vain = absl::StrCat(*why, ": ", reason);
    }
  };
  std::vector<Holder> waiting;
  std::vector<uint64_t> clocks;
  // In the other modes no worker waits for another one.
  bool all_wait = FactsOf(job_.config.job.consistency()).waits() && job_.AllServersThere().ok();
  for (const auto& [id, worker] : job_.membership.workers()) {
    const Holder holder = {id, worker.incarnation};
    auto since = job_.workers.work_since.find(holder);
    const wire::WorkerProgress* progress = job_.progress.Of(holder);
    if (since == job_.workers.work_since.end() || progress == nullptr || !job_.tasks->Busy(holder)) continue;
    if (progress->waiting()) {
      waiting.push_back(holder);
      clocks.push_back(progress->clock());
      continue;
    }
    all_wait = false;
    // Before it had its present work it was idle by order.
    const absl::Duration idle =
        std::min(FromMilliseconds(static_cast<double>(progress->idle_ms())), now - since->second);
    const absl::Duration allowed = job_.stalls.Allowed(*progress);
    if (idle <= allowed) continue;
    expel(holder, worker.name, StallWatch::Reason(idle, allowed));
  }
  if (!all_wait) clocks.clear();
  if (const auto slowest = job_.stalls.HoldsUp(clocks, job_.progress.totals().samples(), now)) {
    const Holder& holder = waiting[*slowest];
    expel(
        holder, job_.membership.workers().at(holder.worker).name,
        absl::StrCat("all workers wait, and nothing was trained for ", Readable(job_.stalls.WaitMax()), "; its clock, ",
                     clocks[*slowest], ", is the smallest, so it holds the others up. Its log says what it waits for"));
  }
  Apply(actions);
  if (in_vain) End(wire::JOB_FAILED, *in_vain);
}

void JobCourse::FailIfDeserted(absl::Time now) {
  std::vector<std::string> gone;
  for (const auto& [id, worker] : job_.membership.workers()) {
    if (worker.state != WorkerState::kDead && worker.state != WorkerState::kLeft) {
      job_.workers.deserted_since.reset();
      return;
    }
    gone.push_back(absl::StrCat(worker.name, " (", worker.reason, ")"));
  }
  if (!job_.workers.deserted_since) {
    job_.workers.deserted_since = now;
    job_.events.Add(
        absl::StrCat("no worker is left; waiting up to ", Readable(job_.config.timeouts.startup), " for a new one"));
  }
  if (now - *job_.workers.deserted_since <= job_.config.timeouts.startup) return;
  if (gone.size() > kNamesMax) gone.erase(gone.begin(), gone.end() - kNamesMax);
  End(wire::JOB_FAILED,
      absl::StrCat("no worker is left, and none has joined within ", Readable(job_.config.timeouts.startup),
                   "; the last ones: ", absl::StrJoin(gone, ", ")));
}

void JobCourse::FailIfNoRoom(absl::Time now) {
  const std::optional<Holder> worker = job_.room.TooLong(now);
  if (!worker) return;
  const wire::WorkerProgress* const progress = job_.progress.Of(*worker);
  End(wire::JOB_FAILED, absl::StrCat(job_.NameOf(worker->worker), " has waited ", Readable(job_.room.Waited(now)),
                                     " for ", progress == nullptr ? "room" : progress->waits_for(),
                                     "; free some space there, and continue with `slackline resume`"));
}

void JobCourse::WatchDivergence() {
  const std::optional<std::string> alarm =
      job_.watch.FindDivergence(job_.progress.totals(), job_.progress.TakeGradientNormPeak(), job_.time.Now());
  if (!alarm) return;
  job_.events.Add(absl::StrCat("warning: training diverges: ", *alarm));
  if (job_.config.job.guard().action() == job::Guard::TIGHTEN) ChangeBound(job_.watch.TightenBound(*alarm));
  if (job_.config.job.guard().action() == job::Guard::STOP) {
    job_.checkpoints.LeaveOutLast();  // nobody wants to go on from here
    End(wire::JOB_FAILED, absl::StrCat("training diverges: ", *alarm, "; ", JobView(job_).LastGoodState()));
  }
}

void JobCourse::WatchBound(absl::Time now) {
  ChangeBound(
      job_.watch.AdjustBound(job_.progress.totals(), job_.progress.TakeSlackPeak(), job_.membership.CountLive(), now));
}

void JobCourse::ChangeBound(const std::optional<StalenessBound::Change>& change) {
  if (!change) return;
  job_.events.Add(absl::StrCat("the bound of ssp goes from ", change->from, " to ", change->to, ": ", change->reason));
  MembershipActions actions;
  job_.membership.SendAgain(actions);
  Apply(actions);
}

void JobCourse::WatchSnapshots(absl::Time now) {
  // A resumed run began long ago, and its servers now.
  const absl::Time since = std::max(job_.phase.began, job_.phase.created);
  if (job_.config.snapshot_folder.empty() || job_.servers.warned_not_durable || now - since < kFirstSnapshotMax) return;
  job_.servers.warned_not_durable = true;
  for (const auto& [id, server] : job_.membership.servers()) {
    if (server.state != ServerState::kLive || job_.servers.durable.contains(id)) continue;
    job_.events.Add(absl::StrCat("warning: ", Called("server", server.name), " has no snapshot on disk ",
                                 Readable(now - since), " after training began, in ", job_.config.snapshot_folder,
                                 ": if this server crashes, the job fails; the server's log has the reason"));
  }
}

void JobCourse::HearSnapshots(ServerId id, const wire::ServerProgress& now) {
  const auto before = job_.servers.progress.find(id);
  const bool failed = before != job_.servers.progress.end() && !before->second.snapshot_error().empty();
  const std::string who = Called("server", job_.membership.servers().at(id).name);
  if (!failed && !now.snapshot_error().empty()) {
    job_.events.Add(absl::StrCat(
        "warning: ", who,
        " writes no snapshots, and training goes on without: when it dies, more is lost: ", now.snapshot_error()));
  } else if (failed && now.snapshot_error().empty()) {
    job_.events.Add(absl::StrCat(who, " writes snapshots again"));
  }
}

void JobCourse::HearVersions(ServerId server, const wire::ServerProgress& progress, absl::Time now) {
  const uint64_t version = progress.version_max();
  const auto [found, first] = job_.servers.version_rates.try_emplace(server, ServersSeen::VersionRate{now, version, 0});
  ServersSeen::VersionRate& rate = found->second;
  if (first || now - rate.since < kVersionRateOver) return;
  const double steps = version > rate.version ? static_cast<double>(version - rate.version) : 0;
  const double seconds = absl::ToDoubleSeconds(now - rate.since);
  rate = {now, version, steps / seconds};
}

void JobCourse::HearWait(const Holder& holder, const wire::WorkerProgress& progress, absl::Time now) {
  const bool waits = !progress.waits_for().empty();
  if (!job_.room.Hear(holder, waits, now)) return;
  job_.events.Add(waits ? absl::StrCat("warning: ", job_.NameOf(holder.worker), " waits for ", progress.waits_for())
                        : absl::StrCat(job_.NameOf(holder.worker), " waits no more"));
}

absl::Status JobCourse::HearWorker(const Holder& holder, const wire::WorkerProgress* progress, absl::Time now) {
  if (absl::Status alive = job_.membership.HeartbeatWorker(holder.worker, holder.incarnation, now); !alive.ok()) {
    return alive;
  }
  const bool trains = job_.Trains(job_.membership.workers().at(holder.worker));
  const uint64_t lost_before = job_.progress.TotalsOf(holder.worker).pushes_lost();
  if (progress != nullptr) {
    job_.progress.Heard(holder, *progress, trains, now);
    FollowTraining(now);
    HearWait(holder, *progress, now);
  }
  const state::Totals totals = job_.progress.TotalsOf(holder.worker);
  if (totals.pushes_lost() > lost_before) AddLossEvent(holder, totals.pushes_lost() - lost_before, "");
  job_.batch_sizes.Observe(holder.worker, {.samples = totals.samples(), .seconds = totals.compute_seconds()});
  return absl::OkStatus();
}

void JobCourse::FollowTraining(absl::Time now) {
  if (!job_.tasks) return;
  job_.tasks->Reached({.samples_trained = job_.SamplesDone(),
                       .samples_applied = job_.progress.totals().samples_applied() / PassesOfPush(job_.config.job)});
  const uint32_t before = job_.epoch_book.epochs();
  const uint32_t over = job_.EpochsTrained();
  if (over <= before) return;
  const EnergyLedger& energy = job_.progress.energy();
  job_.epoch_book.Over(over, {.time_s = job_.phase.ElapsedSeconds(now),
                              .totals = job_.progress.totals(),
                              .joules = energy.metered() ? std::optional(energy.total_joules()) : std::nullopt});
  const uint32_t epochs = job_.config.job.training().epochs();
  for (uint32_t epoch = before + 1; epoch <= over; ++epoch) {
    if (epochs > kEpochsToldMax && epoch != epochs && now - job_.epoch_told <= kEpochToldEvery) continue;
    job_.events.Add(absl::StrCat("epoch ", epoch, " of ", epochs, " is complete"));
    job_.epoch_told = now;
  }
}

void JobCourse::AddReport(absl::Time now) {
  const ProgressReport& progress = job_.progress.Report();
  Report report;
  report.time_s = job_.phase.ElapsedSeconds(now);
  report.epoch = job_.EpochInProgress();
  report.step = progress.totals.steps();
  report.samples = progress.totals.samples();
  report.loss = progress.loss;
  report.accuracy = progress.accuracy;
  job_.evaluations.Report(report);
  const OptimizerConfig optimizer = MakeOptimizerConfig(job_.config.job, job_.shards.layout().train_samples);
  report.learning_rate = LearningRate(optimizer, progress.totals.samples_applied(), /*batches=*/1);
  report.samples_per_second = job_.progress.SamplesPerSecond(now);
  report.staleness_mean = progress.staleness_mean;
  report.staleness = progress.staleness;
  report.staleness_max = progress.staleness_max;
  report.slack = progress.slack;
  report.staleness_bound = job_.watch.bound();
  report.staleness_bound_changes = job_.watch.bound_changes();
  report.gradient_norm_max = progress.gradient_norm_max;
  report.divergences = job_.watch.divergences();
  report.live_workers = job_.membership.CountLive();
  for (const auto& [id, server] : job_.membership.servers()) report.live_servers += server.state == ServerState::kLive;
  report.shard_moves = job_.moves.made();
  report.worker_deaths = job_.workers.deaths;
  report.checkpoints = job_.checkpoints.made();
  report.checkpoints_failed = job_.checkpoints.failures();
  if (job_.checkpoints.whole() > 0) report.checkpoint_age_s = absl::ToDoubleSeconds(job_.checkpoints.Age(now));
  report.samples_given_twice = job_.tasks->ranges().samples_given_twice();
  job_.reports.push_back(report);
  job_.last_report = now;
}

void JobCourse::NoteEvaluation(const wire::EvaluationReport& report, const EvaluationSummary& begun,
                               const std::string& by) {
  Evaluations::Judgement judged = job_.evaluations.Note(report, begun, by);
  job_.epoch_book.Evaluated(report, /*alone=*/job_.membership.CountLive() <= 1);
  job_.events.Add(std::move(judged.told));
  if (judged.warning) job_.events.Add(*std::move(judged.warning));
  if (judged.best) job_.checkpoints.KeepBest(job_.evaluations.all().back());
  if (report.final() || job_.tasks->ranges().cut_short() || !judged.ends) return;
  job_.events.Add(absl::StrCat("training ends early, after what is under way: ", *judged.ends));
  job_.tasks->EndEarly();
}

}  // namespace slackline::scheduler

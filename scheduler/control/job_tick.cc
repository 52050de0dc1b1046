#include "scheduler/control/job_tick.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_kinds.h"
#include "scheduler/control/job_checkpoints.h"
#include "scheduler/control/job_reports.h"
#include "scheduler/control/job_status.h"

namespace slackline::scheduler {
namespace {

// Longest time between two ticks that counts as a delay, in T: ticks come every T / 2 or more often. A longer one is a
// sleep of this machine.
constexpr int kSleepHeartbeats = 4;
// Limit if servers have backups, where 3 T of silence are death: a shorter sleep and T between heartbeats stay below
// 3 T.
constexpr int kSleepHeartbeatsReplicated = 1;
// Names in one message.
constexpr size_t kNamesMax = 10;
// The first snapshot of a shard is made as soon as it has weights; in so long a slow disk takes a large one.
constexpr absl::Duration kFirstSnapshotMax = absl::Seconds(60);
// Time that a supervisor has to ask how the job ended, once all members have left.
constexpr absl::Duration kStatusLinger = absl::Seconds(5);

absl::Duration FromMilliseconds(double milliseconds) { return absl::Milliseconds(std::clamp(milliseconds, 0.0, 1e12)); }

// Excuses what looks like silence because this process itself was stopped, or got no processor.
void ForgiveOwnSleep(RunningJob& job, absl::Time now) {
  const absl::Duration gap = now - job.last_tick;
  job.last_tick = now;
  if (gap <= (job.Replicated() ? kSleepHeartbeatsReplicated : kSleepHeartbeats) * job.config.timeouts.heartbeat) return;
  // Not all of it: where every tick is that late, the dead must be found nevertheless.
  const absl::Duration slept = job.Replicated() ? gap - job.config.timeouts.heartbeat / 2 : gap;
  job.membership.Overslept(slept, now);
  job.stalls.Overslept(slept);
  job.workers.claims.Clear();
  for (auto& [server, since] : job.servers.lost_since) since += slept;
  for (auto& [server, spare] : job.Spares()) spare.heard = std::min(now, spare.heard + slept);
  if (job.workers.deserted_since) *job.workers.deserted_since += slept;
  if (gap <= kSleepHeartbeats * job.config.timeouts.heartbeat) return;  // nothing to speak of
  job.events.Add(absl::StrCat("the scheduler itself stood still for ", Readable(gap),
                              "; the pause does not count as silence of workers and servers"));
}

void ForgetDeparted(RunningJob& job) {
  for (const WorkerId worker : job.membership.ForgetDeparted()) {
    job.workers.origins.erase(worker);
    job.workers.claims.Drop(worker);
    job.progress.Forget(worker);
    job.batch_sizes.Forget(worker);
    std::set<Holder>& told = job.workers.told_to_leave;
    told.erase(told.lower_bound({worker, Incarnation()}),
               told.lower_bound({WorkerId(worker.value() + 1), Incarnation()}));
  }
}

void FailIfServersStayAway(RunningJob& job, JobCourse& course, absl::Time now) {
  for (const auto& [id, since] : job.servers.lost_since) {
    if (now - since <= job.ServerReturn()) continue;
    const Membership::Server& server = job.membership.servers().at(id);
    return course.End(
        wire::JOB_FAILED,
        absl::StrCat(Called("server", server.name), " died ", Readable(now - since), " ago, and ",
                     server.state == ServerState::kLive ? "its shards are not back" : "was not started again",
                     "; allowed are ", absl::FormatDuration(job.ServerReturn()), " (durability.server_return_s)",
                     job.Replicated() ? "" : absl::StrCat("; its snapshots are in ", job.config.snapshot_folder)));
  }
}

void ExpelStalled(RunningJob& job, JobCourse& course, absl::Time now) {
  MembershipActions actions;
  std::optional<std::string> in_vain;
  const auto expel = [&](const Holder& holder, const std::string& name, const std::string& reason) {
    job.membership.Expel(holder.worker, holder.incarnation, reason, actions);
    if (const auto why = job.stalls.Expelled(name, job.progress.totals().samples())) {
      in_vain = absl::StrCat(*why, ": ", reason);
    }
  };
  std::vector<Holder> waiting;
  std::vector<uint64_t> clocks;
  // In the other modes no worker waits for another one.
  bool all_wait = FactsOf(job.config.job.consistency()).waits() && job.AllServersThere().ok();
  for (const auto& [id, worker] : job.membership.workers()) {
    const Holder holder = {id, worker.incarnation};
    auto since = job.workers.work_since.find(holder);
    const wire::WorkerProgress* progress = job.progress.Of(holder);
    if (since == job.workers.work_since.end() || progress == nullptr || !job.tasks->Busy(holder)) continue;
    if (progress->waiting()) {
      waiting.push_back(holder);
      clocks.push_back(progress->clock());
      continue;
    }
    all_wait = false;
    // Time before the worker got its present work does not count: it was idle by order.
    const absl::Duration idle =
        std::min(FromMilliseconds(static_cast<double>(progress->idle_ms())), now - since->second);
    const absl::Duration allowed = job.stalls.Allowed(*progress);
    if (idle <= allowed) continue;
    expel(holder, worker.name, StallWatch::Reason(idle, allowed));
  }
  if (!all_wait) clocks.clear();
  if (const auto slowest = job.stalls.HoldsUp(clocks, job.progress.totals().samples(), now)) {
    const Holder& holder = waiting[*slowest];
    expel(
        holder, job.membership.workers().at(holder.worker).name,
        absl::StrCat("all workers wait, and nothing was trained for ", Readable(job.stalls.WaitMax()), "; its clock, ",
                     clocks[*slowest], ", is the smallest, so it holds the others up. Its log says what it waits for"));
  }
  course.Apply(actions);
  if (in_vain) course.End(wire::JOB_FAILED, *in_vain);
}

void FailIfDeserted(RunningJob& job, JobCourse& course, absl::Time now) {
  std::vector<std::string> gone;
  for (const auto& [id, worker] : job.membership.workers()) {
    if (worker.state != WorkerState::kDead && worker.state != WorkerState::kLeft) {
      job.workers.deserted_since.reset();
      return;
    }
    gone.push_back(absl::StrCat(worker.name, " (", worker.reason, ")"));
  }
  if (!job.workers.deserted_since) {
    job.workers.deserted_since = now;
    job.events.Add(
        absl::StrCat("no worker is left; waiting up to ", Readable(job.config.timeouts.startup), " for a new one"));
  }
  if (now - *job.workers.deserted_since <= job.config.timeouts.startup) return;
  if (gone.size() > kNamesMax) gone.erase(gone.begin(), gone.end() - kNamesMax);
  course.End(wire::JOB_FAILED,
             absl::StrCat("no worker is left, and none has joined within ", Readable(job.config.timeouts.startup),
                          "; the last ones: ", absl::StrJoin(gone, ", ")));
}

void FailIfNoRoom(RunningJob& job, JobCourse& course, absl::Time now) {
  const std::optional<Holder> worker = job.room.TooLong(now);
  if (!worker) return;
  const wire::WorkerProgress* const progress = job.progress.Of(*worker);
  course.End(wire::JOB_FAILED, absl::StrCat(job.NameOf(worker->worker), " has waited ", Readable(job.room.Waited(now)),
                                            " for ", progress == nullptr ? "room" : progress->waits_for(),
                                            "; free some space there, and continue with `slackline resume`"));
}

// Tells people and servers of the change, if there is one.
void ChangeBound(RunningJob& job, JobCourse& course, const std::optional<StalenessBound::Change>& change) {
  if (!change) return;
  job.events.Add(absl::StrCat("the bound of ssp goes from ", change->from, " to ", change->to, ": ", change->reason));
  MembershipActions actions;
  job.membership.SendAgain(actions);
  course.Apply(actions);
}

void WatchDivergence(RunningJob& job, JobCourse& course) {
  const std::optional<std::string> alarm =
      job.watch.FindDivergence(job.progress.totals(), job.progress.TakeGradientNormPeak(), job.time.Now());
  if (!alarm) return;
  job.events.Add(absl::StrCat("warning: training diverges: ", *alarm));
  if (job.config.job.guard().action() == job::Guard::TIGHTEN) ChangeBound(job, course, job.watch.TightenBound(*alarm));
  if (job.config.job.guard().action() == job::Guard::STOP) {
    job.checkpoints.LeaveOutLast();  // nobody wants to go on from here
    course.End(wire::JOB_FAILED, absl::StrCat("training diverges: ", *alarm, "; ", LastGoodState(job)));
  }
}

void WatchBound(RunningJob& job, JobCourse& course, absl::Time now) {
  ChangeBound(
      job, course,
      job.watch.AdjustBound(job.progress.totals(), job.progress.TakeSlackPeak(), job.membership.CountLive(), now));
}

// Warns once if shards are not on disk long after training began.
void WatchSnapshots(RunningJob& job, absl::Time now) {
  // A resumed run began long ago, and its servers now.
  const absl::Time since = std::max(job.phase.began, job.phase.created);
  if (job.config.snapshot_folder.empty() || job.servers.warned_not_durable || now - since < kFirstSnapshotMax) return;
  job.servers.warned_not_durable = true;
  for (const auto& [id, server] : job.membership.servers()) {
    if (server.state != ServerState::kLive || job.servers.durable.contains(id)) continue;
    job.events.Add(absl::StrCat("warning: ", Called("server", server.name), " has no snapshot on disk ",
                                Readable(now - since), " after training began, in ", job.config.snapshot_folder,
                                ": if this server crashes, the job fails; the server's log has the reason"));
  }
}

bool AllWorkersGone(const RunningJob& job, absl::Time now) {
  for (const auto& [id, worker] : job.membership.workers()) {
    if (worker.state == WorkerState::kDead || worker.state == WorkerState::kLeft) continue;
    const bool told = job.workers.told_to_leave.contains({id, worker.incarnation});
    if (!told || now - worker.heard <= job.config.timeouts.lease()) return false;
  }
  return true;
}

bool AllServersGone(const RunningJob& job) {
  for (const auto& [id, server] : job.membership.servers()) {
    if (server.state == ServerState::kLive && !job.servers.stopped.contains(id)) return false;
  }
  return job.Spares().empty();
}

// Returns true until the servers have said how far the workers have read their parts of a stream: the last checkpoint
// is to know. Workers that were told to leave do not report it themselves. Requires: all workers are gone.
bool AwaitsPositions(RunningJob& job, JobCourse& course) {
  if (!job.tasks || !job.tasks->ReadsStream()) return false;
  MembershipActions actions;
  for (const Holder& holder : job.tasks->Holders()) {
    job.membership.Leave(holder.worker, holder.incarnation, job.phase.reason, actions);
    course.WorkerGone(holder);
  }
  course.Apply(actions);
  return job.membership.Fences();
}

// Continues to dismiss the members after the end.
void DismissMembers(RunningJob& job, JobCourse& course, absl::Time now) {
  if (!job.Parting(now)) return;
  if (job.phase.stopping == absl::InfiniteFuture()) {
    WatchCheckpoints(job, now);
    const bool awaited = !AllWorkersGone(job, now) || AwaitsPositions(job, course);
    if (awaited && now - job.phase.ended <= job.config.timeouts.worker_dead()) return;
    if (AwaitsLastCheckpoint(job, now)) return;
    job.phase.stopping = now;
    wire::StopRequest request;
    request.set_job(job.config.id.value());
    request.set_reason(job.phase.reason);
    request.set_remove_snapshots(job.phase.state == wire::JOB_DONE);
    for (const auto& [id, server] : job.membership.servers()) {
      if (server.state == ServerState::kLive) job.calls.Stop({id, server.incarnation}, request);
    }
    for (const auto& [id, spare] : job.Spares()) job.calls.Stop({id, spare.incarnation}, request);
  }
  const bool alone = AllServersGone(job) || now - job.phase.stopping > job.config.timeouts.failover();
  if (alone && (job.config.unwatched || job.phase.status_seen || now - job.phase.stopping >= kStatusLinger))
    job.phase.finished = true;
}

}  // namespace

void TickJob(RunningJob& job, JobCourse& course) {
  const absl::Time now = job.time.Now();
  ForgiveOwnSleep(job, now);
  // Backups come before servers: if both are silent, the cause may be this machine's network.
  if (!job.phase.Ended()) {
    if (const auto never = job.backups.NeverBacked(job.Facts())) course.End(wire::JOB_FAILED, *never);
    job.backups.Watch(job.Facts());
  }
  MembershipActions actions;
  job.membership.Tick(now, actions);
  course.Apply(actions);
  ForgetDeparted(job);
  if (job.phase.Ended()) return DismissMembers(job, course, now);
  if (job.phase.state == wire::JOB_STARTING) {
    if (now - job.phase.created <= job.config.timeouts.startup) return;
    return course.End(wire::JOB_FAILED, absl::StrCat("the job could not start within ",
                                                     Readable(job.config.timeouts.startup), ": it ", Missing(job)));
  }
  FailIfServersStayAway(job, course, now);
  job.moves.Tick(job.checkpoints.in_progress(), job.Facts());
  ExpelStalled(job, course, now);
  if (job.phase.Ended()) return;
  FailIfDeserted(job, course, now);
  FailIfNoRoom(job, course, now);
  WatchDivergence(job, course);
  if (job.phase.Ended()) return;
  WatchBound(job, course, now);
  WatchSnapshots(job, now);
  WatchCheckpoints(job, now);
  if (now - job.last_report >= absl::Milliseconds(job.config.job.output().report_every_ms())) AddReport(job, now);
}

}  // namespace slackline::scheduler

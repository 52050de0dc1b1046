// What the scheduler makes of how training goes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/controller.h"
#include "scheduler/early_stopping.h"

namespace slackline::scheduler {
namespace {

// The bound of ssp is decided on no less than this: time, and steps of each live worker.
constexpr absl::Duration kBoundInterval = absl::Seconds(2);
constexpr uint64_t kBoundSteps = 8;
// The first snapshot of a shard is made as soon as it has weights; in so long a slow disk takes a large one.
constexpr absl::Duration kFirstSnapshotMax = absl::Seconds(60);

}  // namespace

void Controller::WatchDivergence() {
  const ProgressTotals& totals = progress_.totals();
  DivergenceGuard::Seen seen;
  seen.samples = totals.samples - guarded_.samples;
  seen.loss_sum = totals.loss_sum - guarded_.loss_sum;
  seen.gradient_norm_max = progress_.TakeGradientNormPeak();
  guarded_ = totals;
  const std::optional<std::string> alarm = guard_.Observe(seen);
  if (!alarm) return;
  ++divergences_;
  diverged_at_ = time_.Now();
  events_.Add(absl::StrCat("warning: training diverges: ", *alarm));
  if (config_.job.guard().action() == job::Guard::TIGHTEN && bound_) ChangeBound(bound_->Tighten(*alarm));
  if (config_.job.guard().action() == job::Guard::STOP) {
    checkpoint_.last_tried = true;  // nobody wants to go on from here
    End(wire::JOB_FAILED, absl::StrCat("training diverges: ", *alarm, "; ", LastGoodState()));
  }
}

std::string Controller::LastGoodState() const {
  const std::string kept =
      checkpoint_.whole > 0 ? absl::StrCat("the last checkpoint is ", checkpoint_.folder) : "no checkpoint was made";
  if (evaluations_.empty()) return absl::StrCat("nothing was evaluated yet, and ", kept);
  const EvaluationSummary& last = evaluations_.back();
  const std::string loss = last.map ? "" : absl::StrFormat(", loss %.4f", last.loss);
  return absl::StrCat("the last evaluation was after epoch ", last.epoch, " (",
                      Described(job::Metric::TEST_ACCURACY, last), loss, "), ", kept);
}

void Controller::HearSnapshots(ServerId id, const wire::ServerProgress& now) {
  const auto before = server_progress_.find(id);
  const bool failed = before != server_progress_.end() && !before->second.snapshot_error().empty();
  const std::string who = Called("server", membership_.servers().at(id).name);
  if (!failed && !now.snapshot_error().empty()) {
    events_.Add(absl::StrCat(
        "warning: ", who,
        " writes no snapshots, and training goes on without: when it dies, more is lost: ", now.snapshot_error()));
  } else if (failed && now.snapshot_error().empty()) {
    events_.Add(absl::StrCat(who, " writes snapshots again"));
  }
}

void Controller::WatchSnapshots(absl::Time now) {
  // A resumed run began long ago, and its servers now.
  const absl::Time since = std::max(began_, created_);
  if (config_.snapshot_folder.empty() || warned_not_durable_ || now - since < kFirstSnapshotMax) return;
  warned_not_durable_ = true;
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state != ServerState::kLive || durable_.contains(id)) continue;
    events_.Add(absl::StrCat("warning: ", Called("server", server.name), " has no snapshot on disk ",
                             Readable(now - since), " after training began, in ", config_.snapshot_folder,
                             ": if this server crashes, the job fails; the server's log has the reason"));
  }
}

void Controller::HearWait(const Holder& holder, const wire::WorkerProgress& progress, absl::Time now) {
  const bool waits = !progress.waits_for().empty();
  if (waits == waits_for_room_.contains(holder)) return;
  if (waits) {
    // Nobody waited for so long before, or the job would have failed: the last one died over it.
    const bool stale = waits_for_room_.empty() && no_room_since_ &&
                       now - *no_room_since_ > absl::Seconds(config_.job.checkpoint().timeout_s());
    if (!no_room_since_ || stale) no_room_since_ = now;
    waits_for_room_.insert(holder);
    events_.Add(absl::StrCat("warning: ", NameOf(holder.worker), " waits for ", progress.waits_for()));
  } else {
    waits_for_room_.erase(holder);
    if (waits_for_room_.empty()) no_room_since_.reset();
    events_.Add(absl::StrCat(NameOf(holder.worker), " waits no more"));
  }
}

void Controller::FailIfNoRoom(absl::Time now) {
  const absl::Duration most = absl::Seconds(config_.job.checkpoint().timeout_s());
  if (waits_for_room_.empty() || now - *no_room_since_ <= most) return;
  const Holder& first = *waits_for_room_.begin();
  const wire::WorkerProgress* const progress = progress_.Of(first);
  End(wire::JOB_FAILED, absl::StrCat(NameOf(first.worker), " has waited ", Readable(now - *no_room_since_), " for ",
                                     progress == nullptr ? "room" : progress->waits_for(),
                                     "; free some space there, and continue with `slackline resume`"));
}

void Controller::WatchBound(absl::Time now) {
  if (!bound_) return;
  const ProgressTotals& totals = progress_.totals();
  const ProgressTotals& before = bound_watched_.totals;
  bound_watched_.slack_max = std::max(bound_watched_.slack_max, progress_.TakeSlackPeak());
  StalenessBound::Interval seen;
  seen.live_workers = membership_.CountLive();
  if (now - bound_watched_.at < kBoundInterval) return;
  if (totals.steps - before.steps < kBoundSteps * std::max<uint64_t>(1, seen.live_workers)) return;
  seen.compute_seconds = totals.compute_seconds - before.compute_seconds;
  seen.wait_seconds = totals.wait_seconds - before.wait_seconds;
  if (const uint64_t answers = totals.staleness_answers - before.staleness_answers; answers > 0) {
    seen.staleness_mean =
        static_cast<double>(totals.staleness_sum - before.staleness_sum) / static_cast<double>(answers);
  }
  seen.slack_max = bound_watched_.slack_max;
  bound_watched_ = {.at = now, .totals = totals, .slack_max = 0};
  ChangeBound(bound_->Observe(seen));
}

void Controller::ChangeBound(const std::optional<StalenessBound::Change>& change) {
  if (!change) return;
  ++bound_changes_;
  events_.Add(absl::StrCat("the bound of ssp goes from ", change->from, " to ", change->to, ": ", change->reason));
  MembershipActions actions;
  membership_.SendAgain(actions);
  Apply(actions);
}

}  // namespace slackline::scheduler

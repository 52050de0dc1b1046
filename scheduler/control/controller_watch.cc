// What the scheduler makes of how training goes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/control/controller.h"
#include "scheduler/watch/early_stopping.h"

namespace slackline::scheduler {
namespace {

// The first snapshot of a shard is made as soon as it has weights; in so long a slow disk takes a large one.
constexpr absl::Duration kFirstSnapshotMax = absl::Seconds(60);

}  // namespace

void Controller::WatchDivergence() {
  const std::optional<std::string> alarm =
      watch_.FindDivergence(progress_.totals(), progress_.TakeGradientNormPeak(), time_.Now());
  if (!alarm) return;
  events_.Add(absl::StrCat("warning: training diverges: ", *alarm));
  if (config_.job.guard().action() == job::Guard::TIGHTEN) ChangeBound(watch_.TightenBound(*alarm));
  if (config_.job.guard().action() == job::Guard::STOP) {
    checkpoints_.LeaveOutLast();  // nobody wants to go on from here
    End(wire::JOB_FAILED, absl::StrCat("training diverges: ", *alarm, "; ", LastGoodState()));
  }
}

std::string Controller::LastGoodState() const {
  const std::string kept = checkpoints_.whole() > 0 ? absl::StrCat("the last checkpoint is ", checkpoints_.folder())
                                                    : "no checkpoint was made";
  if (evaluations_.all().empty()) return absl::StrCat("nothing was evaluated yet, and ", kept);
  const EvaluationSummary& last = evaluations_.all().back();
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
  if (!room_.Hear(holder, waits, now)) return;
  events_.Add(waits ? absl::StrCat("warning: ", NameOf(holder.worker), " waits for ", progress.waits_for())
                    : absl::StrCat(NameOf(holder.worker), " waits no more"));
}

void Controller::FailIfNoRoom(absl::Time now) {
  const std::optional<Holder> worker = room_.TooLong(now);
  if (!worker) return;
  const wire::WorkerProgress* const progress = progress_.Of(*worker);
  End(wire::JOB_FAILED, absl::StrCat(NameOf(worker->worker), " has waited ", Readable(room_.Waited(now)), " for ",
                                     progress == nullptr ? "room" : progress->waits_for(),
                                     "; free some space there, and continue with `slackline resume`"));
}

void Controller::WatchBound(absl::Time now) {
  ChangeBound(watch_.AdjustBound(progress_.totals(), progress_.TakeSlackPeak(), membership_.CountLive(), now));
}

void Controller::ChangeBound(const std::optional<StalenessBound::Change>& change) {
  if (!change) return;
  events_.Add(absl::StrCat("the bound of ssp goes from ", change->from, " to ", change->to, ": ", change->reason));
  MembershipActions actions;
  membership_.SendAgain(actions);
  Apply(actions);
}

}  // namespace slackline::scheduler

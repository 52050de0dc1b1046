// Checkpoints (checkpoints.h): when they may be made, and the calls for them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/job_view.h"
#include "scheduler/control/saved_state.h"

namespace slackline::scheduler {

absl::Status JobCourse::CanCheckpoint() const {
  if (job_.config.checkpoint_folder.empty())
    return absl::FailedPreconditionError("this scheduler makes no checkpoints");
  if (job_.phase.state == wire::JOB_STARTING)
    return absl::UnavailableError(absl::StrCat("the job ", JobView(job_).Missing()));
  if (const absl::Status there = job_.AllServersThere(); !there.ok()) return there;
  if (job_.moves.Decided()) return absl::UnavailableError("shards are changing hands");
  if (!job_.AllSeeded()) return absl::UnavailableError("the shards have no weights yet");
  return absl::OkStatus();
}

Checkpoints::Facts JobCourse::CheckpointFacts(absl::Time now) const {
  return {.now = now,
          .began = job_.phase.began,
          .ended = job_.phase.Ended(),
          .samples = job_.progress.totals().samples(),
          .epochs = job_.tasks ? job_.tasks->ranges().epochs_done() : 0};
}

void JobCourse::WatchCheckpoints(absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(now);
  job_.checkpoints.Tick(facts);
  SendCheckpointCall();
  if (!job_.tasks || job_.phase.state == wire::JOB_STARTING) return;
  facts.possible = CanCheckpoint();
  if (const std::optional<std::string> reason = job_.checkpoints.Due(facts)) BeginCheckpoint(*reason, now);
}

void JobCourse::BeginCheckpoint(const std::string& reason, absl::Time now) {
  std::map<ServerId, std::string> servers;
  for (const auto& [id, server] : job_.membership.servers()) servers[id] = server.name;
  job_.checkpoints.Begin(reason, SaveState(job_, absl::InfinitePast()), job_.shards.layout(), std::move(servers),
                         CheckpointFacts(now));
  SendCheckpointCall();
}

void JobCourse::SendCheckpointCall() {
  std::optional<wire::BeginCheckpointRequest> request = job_.checkpoints.TakeCall();
  if (!request) return;
  for (const auto& [id, server] : job_.membership.servers()) {
    request->set_generation(job_.shards.GenerationOf(id).value());
    request->set_server_incarnation(server.incarnation.value());
    job_.calls.BeginCheckpoint({id, server.incarnation}, *request);
  }
}

bool JobCourse::AwaitsLastCheckpoint(absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(now);
  facts.possible = CanCheckpoint();
  const Checkpoints::Last last = job_.checkpoints.LastOne(facts);
  if (last == Checkpoints::Last::kBegin) BeginCheckpoint(job_.phase.reason, now);
  return last != Checkpoints::Last::kNothing;
}

uint64_t JobCourse::HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress) {
  const uint64_t heard = job_.checkpoints.Heard(server, progress, CheckpointFacts(job_.time.Now()));
  SendCheckpointCall();
  return heard;
}

}  // namespace slackline::scheduler

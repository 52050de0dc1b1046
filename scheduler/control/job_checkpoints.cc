#include "scheduler/control/job_checkpoints.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/control/job_status.h"
#include "scheduler/control/saved_state.h"

namespace slackline::scheduler {
namespace {

absl::Status CanCheckpoint(const RunningJob& job) {
  if (job.config.checkpoint_folder.empty()) return absl::FailedPreconditionError("this scheduler makes no checkpoints");
  if (job.phase.state == wire::JOB_STARTING) return absl::UnavailableError(absl::StrCat("the job ", Missing(job)));
  if (const absl::Status there = job.AllServersThere(); !there.ok()) return there;
  if (job.moves.Decided()) return absl::UnavailableError("shards are changing hands");
  if (!job.AllSeeded()) return absl::UnavailableError("the shards have no weights yet");
  return absl::OkStatus();
}

void BeginCheckpoint(RunningJob& job, const std::string& reason, absl::Time now) {
  std::map<ServerId, std::string> servers;
  for (const auto& [id, server] : job.membership.servers()) servers[id] = server.name;
  job.checkpoints.Begin(reason, SaveState(job, absl::InfinitePast()), job.shards.layout(), std::move(servers),
                        CheckpointFacts(job, now));
  SendCheckpointCall(job);
}

}  // namespace

Checkpoints::Facts CheckpointFacts(const RunningJob& job, absl::Time now) {
  return {.now = now,
          .began = job.phase.began,
          .ended = job.phase.Ended(),
          .samples = job.progress.totals().samples(),
          .epochs = job.tasks ? job.tasks->ranges().epochs_done() : 0};
}

void SendCheckpointCall(RunningJob& job) {
  std::optional<wire::BeginCheckpointRequest> request = job.checkpoints.TakeCall();
  if (!request) return;
  for (const auto& [id, server] : job.membership.servers()) {
    request->set_generation(job.shards.GenerationOf(id).value());
    request->set_server_incarnation(server.incarnation.value());
    job.calls.BeginCheckpoint({id, server.incarnation}, *request);
  }
}

absl::StatusOr<wire::CheckpointReply> RequestCheckpoint(RunningJob& job, const wire::CheckpointRequest& request) {
  if (job.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job.phase.reason));
  if (!job.checkpoints.in_progress()) {
    if (absl::Status can = CanCheckpoint(job); !can.ok()) return can;
    BeginCheckpoint(job, request.reason().empty() ? "on demand" : request.reason(), job.time.Now());
  }
  wire::CheckpointReply reply;
  reply.set_checkpoint(job.checkpoints.last_number());
  return reply;
}

void WatchCheckpoints(RunningJob& job, absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(job, now);
  job.checkpoints.Tick(facts);
  SendCheckpointCall(job);
  if (!job.tasks || job.phase.state == wire::JOB_STARTING) return;
  facts.possible = CanCheckpoint(job);
  if (const std::optional<std::string> reason = job.checkpoints.Due(facts)) BeginCheckpoint(job, *reason, now);
}

bool AwaitsLastCheckpoint(RunningJob& job, absl::Time now) {
  Checkpoints::Facts facts = CheckpointFacts(job, now);
  facts.possible = CanCheckpoint(job);
  const Checkpoints::Last last = job.checkpoints.LastOne(facts);
  if (last == Checkpoints::Last::kBegin) BeginCheckpoint(job, job.phase.reason, now);
  return last != Checkpoints::Last::kNothing;
}

uint64_t HearCheckpoint(RunningJob& job, ServerId server, const wire::CheckpointProgress& progress) {
  const uint64_t heard = job.checkpoints.Heard(server, progress, CheckpointFacts(job, job.time.Now()));
  SendCheckpointCall(job);
  return heard;
}
}  // namespace slackline::scheduler

// Checkpoints of a job (checkpoints.h): when they may be made, and the calls to the servers for them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

Checkpoints::Facts CheckpointFacts(const RunningJob& job, absl::Time now);
// Begins a checkpoint that somebody asks for, unless one is in progress, and returns its number.
absl::StatusOr<wire::CheckpointReply> RequestCheckpoint(RunningJob& job, const wire::CheckpointRequest& request);
// Begins a checkpoint that is due, and continues one that was begun.
void WatchCheckpoints(RunningJob& job, absl::Time now);
// Makes the last checkpoint, if one is wanted. True while the servers must stay for it.
bool AwaitsLastCheckpoint(RunningJob& job, absl::Time now);
// Makes the call to all servers that the checkpoint in progress needs, if there is one.
void SendCheckpointCall(RunningJob& job);
// Returns the number of the checkpoint whose outcome the server need not report again; 0 for none.
uint64_t HearCheckpoint(RunningJob& job, ServerId server, const wire::CheckpointProgress& progress);

}  // namespace slackline::scheduler

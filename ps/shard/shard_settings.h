// Derives the settings of a shard: those of its engine from the job file; from the scheduler's request its parts, which
// are trained, averaged and frozen elements, the group of the optimizer's settings for each range, and its members.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/consistency/engine.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Returns the engine's settings. `samples_per_epoch`: number of training images.
EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts, uint64_t samples_per_epoch);

// Returns the time between two calls of Engine::Tick(), on which deadlines of steps depend: a quarter of the quorum's
// deadline, 5 ms with grace; at least 5 ms and at most T.
absl::Duration TickEvery(const job::Job& job, const Timeouts& timeouts);

// Checks the parts of all shards. `groups`: number of groups in the job file.
//   kInvalidArgument  elements that are both frozen and trained; ranges that are out of order, beyond the trained
//                     elements, or of an unknown group
absl::Status CheckParts(const wire::InstallShardsRequest& request, int groups);

// Requires, like RunsOf(): CheckParts() returned OK.
ShardExtent ExtentOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);
std::vector<GroupRun> RunsOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);

MemberSet MembersOf(const wire::SetMembersRequest& request);

}  // namespace slackline::ps

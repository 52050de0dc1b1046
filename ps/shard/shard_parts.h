// Derives the parts of a shard from the scheduler's request: trained, averaged and frozen elements, and the group of
// the optimizer's settings for each range.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "parameter_server.pb.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Checks the parts of all shards. `groups`: number of groups in the job file.
//   kInvalidArgument  elements that are both frozen and trained; ranges that are out of order, beyond the trained
//                     elements, or of an unknown group
absl::Status CheckParts(const wire::InstallShardsRequest& request, int groups);

// Requires, like RunsOf(): CheckParts() returned OK.
ShardExtent ExtentOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);
std::vector<GroupRun> RunsOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);

}  // namespace slackline::ps

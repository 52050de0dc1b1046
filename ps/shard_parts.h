// What the scheduler says of the parts of a shard: what is trained, averaged and frozen, and which group of the
// optimizer's settings is for what.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "parameter_server.pb.h"
#include "ps/shard_state.h"

namespace slackline::ps {

// `groups`: of the job file.
//   kInvalidArgument  elements that are frozen and trained; ranges that are not in order, beyond what is trained, or of
//                     a group that is not there
absl::Status CheckParts(const wire::InstallShardsRequest& request, int groups);

// Both require CheckParts().
ShardExtent ExtentOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);
std::vector<GroupRun> RunsOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec);

}  // namespace slackline::ps

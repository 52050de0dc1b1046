// Sizes of the memory in which pushes wait for the rest of their step.
#pragma once

#include <cstdint>

#include "job.pb.h"
#include "parameter_server.pb.h"

namespace slackline::ps {

// Returns the number of bytes of the weights of all shards in the request.
uint64_t WeightBytes(const wire::InstallShardsRequest& request);
// Returns the number of bytes that pushes of so many workers to shards of `weight_bytes` bytes may take together: the
// job's limit if it has one.
uint64_t StagingBytesMax(const job::Job& job, uint64_t weight_bytes, uint64_t workers);
// Returns the number of bytes without which the shards would stop for good.
uint64_t StagingBytesNeeded(const job::Job& job, uint64_t weight_bytes, uint64_t workers);

}  // namespace slackline::ps

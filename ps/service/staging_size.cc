#include "ps/service/staging_size.h"

#include <algorithm>

#include "common/job/job_kinds.h"

namespace slackline::ps {
namespace {

// Number of pushes of so many workers that a shard may have to hold at once.
uint64_t PushesHeld(const job::Job& job, uint64_t workers) {
  const ModeFacts& mode = FactsOf(job.consistency());
  if (mode.has_groups) return std::max<uint64_t>(1, workers / job.consistency().softsync_n());
  // Late pushes that count: as many as the window allows, of each worker.
  const uint64_t late = mode.synchronous && mode.answers_first ? workers * job.wire().window() : 0;
  // All but one have sent what the window allows, and the step waits for that one's.
  return mode.synchronous ? late + (workers - 1) * job.wire().window() + 1 : 1;
}

}  // namespace

uint64_t WeightBytes(const wire::InstallShardsRequest& request) {
  uint64_t bytes = 0;
  for (const wire::ShardSpec& spec : request.shards()) bytes += (spec.end() - spec.begin()) * sizeof(float);
  return bytes;
}

uint64_t StagingBytesMax(const job::Job& job, uint64_t weight_bytes, uint64_t workers) {
  if (job.limits().staging_bytes_max() > 0) return job.limits().staging_bytes_max();
  // Pushes that are held and answered leave their workers free to send as much as the window allows again.
  const bool answered = FactsOf(job.consistency()).answers_first;
  return weight_bytes * (uint64_t{job.wire().window()} * workers + (answered ? PushesHeld(job, workers) : 1));
}

uint64_t StagingBytesNeeded(const job::Job& job, uint64_t weight_bytes, uint64_t workers) {
  return weight_bytes * PushesHeld(job, workers);
}

}  // namespace slackline::ps

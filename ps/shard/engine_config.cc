#include "ps/shard/engine_config.h"

#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"

namespace slackline::ps {

EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts, uint64_t samples_per_epoch) {
  const job::Consistency& consistency = job.consistency();
  EngineConfig config;
  config.mode = FactsOf(consistency).mode;
  config.staleness_max = consistency.staleness_max();
  config.softsync_n = consistency.softsync_n();
  config.quorum = consistency.quorum();
  config.quorum_deadline = absl::Milliseconds(consistency.quorum_deadline_ms());
  if (consistency.weighting() == job::Consistency::UNIFORM) config.weighting = Weighting::kUniform;
  if (consistency.staleness_lr() == job::Consistency::INVERSE) config.staleness_lr = StalenessLr::kInverse;
  config.samples_nominal = SamplesOfPush(job, samples_per_epoch);
  config.outlier_factor = job.local().outlier_factor();
  config.notice_every = timeouts.notice();
  config.standstill_after = timeouts.worker_dead();
  return config;
}

}  // namespace slackline::ps

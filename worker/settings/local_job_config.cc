#include "worker/settings/local_job_config.h"

#include "common/job/job_kinds.h"

namespace slackline::worker {

LocalConfig MakeLocalConfig(const job::Local& local) {
  LocalConfig config;
  config.steps = local.steps();
  config.epochs = local.epochs();
  config.subset_samples = local.subset_samples();
  config.optimizer = {
      .kind = FactsOf(local).kind,
      .lr = local.lr(),
      .momentum = local.momentum(),
      .weight_decay = local.weight_decay(),
      .beta1 = local.beta1(),
      .beta2 = local.beta2(),
      .epsilon = local.epsilon(),
  };
  config.keep_state = local.keep_state() == job::Local::ALWAYS ||
                      (local.keep_state() == job::Local::AUTO && FactsOf(local).has_moments);
  return config;
}

}  // namespace slackline::worker

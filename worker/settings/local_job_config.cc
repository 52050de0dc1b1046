#include "worker/settings/local_job_config.h"

namespace slackline::worker {
namespace {

OptimizerKind KindOf(job::Local::Optimizer kind) {
  switch (kind) {
    case job::Local::SGD:
      return OptimizerKind::kSgd;
    case job::Local::ADAM:
      return OptimizerKind::kAdam;
    case job::Local::ADAMW:
      return OptimizerKind::kAdamW;
  }
  return OptimizerKind::kSgd;
}

}  // namespace

LocalConfig MakeLocalConfig(const job::Local& local) {
  const bool sgd = local.optimizer() == job::Local::SGD;
  LocalConfig config;
  config.steps = local.steps();
  config.epochs = local.epochs();
  config.subset_samples = local.subset_samples();
  config.optimizer = {
      .kind = KindOf(local.optimizer()),
      .lr = local.lr(),
      .momentum = local.momentum(),
      .weight_decay = local.weight_decay(),
      .beta1 = local.beta1(),
      .beta2 = local.beta2(),
      .epsilon = local.epsilon(),
  };
  config.keep_state = local.keep_state() == job::Local::ALWAYS || (local.keep_state() == job::Local::AUTO && !sgd);
  return config;
}

}  // namespace slackline::worker

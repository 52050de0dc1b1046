#include "common/job/job_file.h"

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include "common/job/writer.h"

namespace slackline::job_file_test {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<job::Job> job = ParseJob(yaml, "j.yaml", overrides);
  return job.ok() ? "OK" : std::string(job.status().message());
}

bool Same(const job::Job& a, const job::Job& b) { return google::protobuf::util::MessageDifferencer::Equals(a, b); }

constexpr char kFull[] = R"(# A job.
name: trial-1
seed: 1_000_000
model:
  kind: cnn
  hidden: [128]
  filters: [32, 64]
  batch_norm: true
data:
  path: "/data/a: b"
training: {epochs: 3, batch_size: 1e2}
optimizer:
  kind: sgd
  lr: 5e-2
  momentum: .9
  nesterov: true
  schedule:
    kind: cosine
    warmup_epochs: 0.5
consistency:
  mode: ssp
  staleness_max: 2
worker:
  devices:
    - cpu
    - cpu
output:   # nothing set here
)";

struct Refusal {
  const char* name;
  const char* yaml;
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class JobFileRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(JobFileRefuses, WithLineFoundAndAllowed) { EXPECT_EQ(MessageOf(GetParam().yaml), GetParam().message); }

const Refusal kRefusals[] = {
    {"TextForNumber", "optimizer:\n  lr: fast\n",
     "j.yaml:2: optimizer.lr: found 'fast'; allowed is a number from 0 to 1000"},
    {"QuotedNumber", "optimizer: {lr: \"0.1\"}\n",
     "j.yaml:1: optimizer.lr: found the text \"0.1\"; allowed is a number from 0 to 1000"},
    {"NotANumber", "optimizer: {lr: .nan}\n",
     "j.yaml:1: optimizer.lr: found '.nan'; allowed is a number from 0 to 1000"},
    {"Negative", "seed: -1\n", "j.yaml:1: seed: found '-1'; allowed is a whole number, at least 0"},
    {"Fraction", "training: {epochs: 2.5}\n",
     "j.yaml:1: training.epochs: found '2.5'; allowed is a whole number from 1 to 1000000"},
    {"MovingBoundInAnotherMode", "consistency: {mode: bsp, staleness_auto: true}\n",
     "j.yaml:1: consistency.staleness_auto: found a value together with bsp; allowed is only with consistency.mode: "
     "ssp (add --set consistency.staleness_auto=false to take the default back)"},
    {"SmallestBoundOfAFixedOne", "consistency: {staleness_min: 2}\n",
     "j.yaml:1: consistency.staleness_min: found a value together with a fixed bound; allowed is only with "
     "consistency.staleness_auto: true or guard.action: tighten (add --set consistency.staleness_min=1 to take the "
     "default back)"},
    {"GuardWithoutALimit", "guard: {action: stop}\n",
     "j.yaml:1: guard.action: found stop without a limit; allowed is that with guard.loss_max, guard.loss_factor or "
     "guard.gradient_norm_max above 0"},
    {"GuardThatTightensNothing", "consistency: {mode: bsp}\nguard: {loss_max: 5, action: tighten}\n",
     "j.yaml:2: guard.action: found tighten together with bsp; allowed is tighten only with consistency.mode: ssp, "
     "which has a bound"},
    {"GuardAgainstNoGrowth", "guard: {loss_factor: 0.5}\n",
     "j.yaml:1: guard.loss_factor: found 0.5; allowed is a number above 1, or 0 for any loss"},
    {"BoundsTheWrongWayRound", "consistency: {staleness_auto: true, staleness_min: 5}\n",
     "j.yaml:1: consistency.staleness_min: found 5; allowed is at most consistency.staleness_max (4)"},
    {"TokensOfImages", "training: {tokens_per_sample: 256}\n",
     "j.yaml:1: training.tokens_per_sample: found 256 with model.kind: mlp (the default); allowed is 0, or more with "
     "model.kind: "
     "external: the other models' samples are images"},
    {"SmallestBatchOfFixedOnes", "training: {batch_size_min: 2}\n",
     "j.yaml:1: training.batch_size_min: found a value together with fixed; allowed is only with training.batch: "
     "balance "
     "(add --set training.batch_size_min=1 to take the default back)"},
    {"SmallestBatchAboveTheMean", "training: {batch: balance, batch_size_min: 65}\n",
     "j.yaml:1: training.batch_size_min: found 65; allowed is at most training.batch_size (64)"},
    {"EarlyStoppingWithoutPatience", "training: {early_stopping: {min_delta: 0.1}}\n",
     "j.yaml:1: training.early_stopping.min_delta: found a value together with patience: 0; allowed is only with "
     "training.early_stopping.patience above 0 (add --set training.early_stopping.min_delta=0 to take the default "
     "back)"},
    {"TargetsInARelativeFolder", "output: {targets_folder: targets}\n",
     "j.yaml:1: output.targets_folder: found 'targets'; allowed is an absolute path"},
    {"UnknownTracker", "output: {trackers: [wandb, neptune]}\n",
     "j.yaml:1: output.trackers[1]: found 'neptune'; allowed is one of wandb, mlflow"},
    {"TrackersWithoutCurves", "output: {trackers: wandb, tensorboard: false}\n",
     "j.yaml:1: output.trackers: found a value together with false; allowed is only with output.tensorboard: true, "
     "whose event files have the curves (add --set output.trackers=[] to take the default back)"},
    {"EarlyStoppingAfterTheLastEpoch", "training: {epochs: 3, early_stopping: {patience: 2, start_epoch: 4}}\n",
     "j.yaml:1: training.early_stopping.start_epoch: found 4; allowed is at most training.epochs (3)"},
    {"EarlyStoppingWithoutEvaluations", "training: {evaluate_every_epochs: 0, early_stopping: {patience: 2}}\n",
     "j.yaml:1: training.early_stopping.patience: found 2; allowed is with training.evaluate_every_epochs or "
     "training.evaluate_every_samples above 0"},
    {"EvaluationsByEpochsAndBySamples", "training: {evaluate_every_epochs: 2, evaluate_every_samples: 1000}\n",
     "j.yaml:1: training.evaluate_every_epochs: found 2 together with training.evaluate_every_samples; allowed is one "
     "of the two: leave one out"},
    {"BestMetricOfNone", "checkpoint: {metric: test_loss}\n",
     "j.yaml:1: checkpoint.metric: found a value together with keep_best: 0; allowed is only with checkpoint.keep_best "
     "above 0 (add --set checkpoint.metric=test_accuracy to take the default back)"},
    {"MapWithBadKey", "worker: {slowdown: {one: 2}}\n",
     "j.yaml:1: a key of worker.slowdown: found 'one'; allowed is a whole number from 0 to 4294967295"},
    {"MapWithBadValue", "worker:\n  slowdown:\n    1: 2\n    2: slow\n",
     "j.yaml:4: worker.slowdown[2]: found 'slow'; allowed is a number from 1 to 10000"},
    {"MapOutOfRange", "worker: {slowdown: {1: 0.5}}\n",
     "j.yaml:1: worker.slowdown[1]: found '0.5'; allowed is a number from 1 to 10000"},
    {"MapWithKeyTwice", "worker:\n  slowdown:\n    1: 2\n    1: 3\n",
     "j.yaml:4: worker.slowdown[1]: found a second time; the first is in line 3"},
    {"NumberForMap", "worker: {slowdown: 12}\n",
     "j.yaml:1: worker.slowdown: found '12'; allowed is a map in { }, each key a whole number from 0 to 4294967295, "
     "each value a number from 1 to 10000"},
    {"ListForMap", "worker: {slowdown: [1, 2]}\n",
     "j.yaml:1: worker.slowdown: found a list; allowed is a map in { }, each key a whole number from 0 to 4294967295, "
     "each value a number from 1 to 10000"},
    {"KeysOfMapEntriesAreNotSuggested", "worker: {value: 3}\n",
     "j.yaml:1: found the unknown key 'worker.value'; allowed are devices, threads, slowdown, trace, trace_otlp, "
     "stages, "
     "micro_batches, groups, cores, precision, loss_scale, loss_scale_growth_steps, channels_last, cudnn_benchmark, "
     "cuda_graphs, per_node, node_group"},
    {"Octal", "training: {epochs: 010}\n",
     "j.yaml:1: training.epochs: found '010'; allowed is a whole number from 1 to 1000000"},
    {"Hexadecimal", "training: {epochs: 0x10}\n",
     "j.yaml:1: training.epochs: found '0x10'; allowed is a whole number from 1 to 1000000"},
    {"UnderscoreAtEnd", "seed: 10_\n", "j.yaml:1: seed: found '10_'; allowed is a whole number, at least 0"},
    {"TooLarge", "network: {metrics_port: 65536}\n",
     "j.yaml:1: network.metrics_port: found '65536'; allowed is a whole number from 0 to 65535"},
    {"TooLargeForItsType", "data: {train_images_max: 4294967296}\n",
     "j.yaml:1: data.train_images_max: found '4294967296'; allowed is a whole number from 0 to 4294967295"},
    {"TooLargeFor64Bits", "seed: 18446744073709551616\n",
     "j.yaml:1: seed: found '18446744073709551616'; allowed is a whole number, at least 0"},
    {"YesForTrue", "model: {kind: cnn, batch_norm: yes}\n",
     "j.yaml:1: model.batch_norm: found 'yes'; allowed is true or false"},
    {"UpperCaseEnum", "consistency: {mode: SSP}\n",
     "j.yaml:1: consistency.mode: found 'SSP'; allowed is one of async, ssp, bsp, softsync, quorum"},
    {"LocalAsAMode", "consistency: {mode: local}\n",
     "j.yaml:1: consistency.mode: found 'local'; allowed is one of async, ssp, bsp, softsync, quorum (local training "
     "goes with any of these modes, set local.steps or local.epochs)"},
    {"NumberForList", "model: {hidden: 64}\n",
     "j.yaml:1: model.hidden: found '64'; allowed is a list in [ ], each a whole number from 1 to 1000000"},
    {"ListForNumber", "seed: [1]\n", "j.yaml:1: seed: found a list; allowed is a whole number, at least 0"},
    {"WrongItem", "model:\n  hidden:\n    - 64\n    - 0\n",
     "j.yaml:4: model.hidden[1]: found '0'; allowed is a whole number from 1 to 1000000"},
    {"NothingForNumber", "seed:\nname: x\n", "j.yaml:1: seed: found nothing; allowed is a whole number, at least 0"},
    {"NumberForSection", "training: 5\n",
     "j.yaml:1: training: found '5'; allowed is a section of keys: epochs, batch_size, evaluation_batch_size, "
     "evaluate_every_epochs, accumulate, batch, batch_size_min, early_stopping, label_smoothing, class_weights, loss, "
     "self_supervised, evaluate_every_samples, metric, tokens_per_sample"},
    {"NearKey", "training:\n  epoch: 5\n",
     "j.yaml:2: found the unknown key 'training.epoch'; did you mean 'training.epochs'? Allowed are epochs, "
     "batch_size, evaluation_batch_size, evaluate_every_epochs, accumulate, batch, batch_size_min, early_stopping, "
     "label_smoothing, class_weights, loss, self_supervised, evaluate_every_samples, metric, tokens_per_sample"},
    {"KeyOfAnotherSection", "training:\n  lr: 5\n",
     "j.yaml:2: found the unknown key 'training.lr'; did you mean 'optimizer.lr'? Allowed are epochs, batch_size, "
     "evaluation_batch_size, evaluate_every_epochs, accumulate, batch, batch_size_min, early_stopping, "
     "label_smoothing, class_weights, loss, self_supervised, evaluate_every_samples, metric, tokens_per_sample"},
    {"UnknownKey", "consistency:\n  xylophone: 5\n",
     "j.yaml:2: found the unknown key 'consistency.xylophone'; allowed are mode, staleness_max, softsync_n, quorum, "
     "quorum_deadline_ms, weighting, staleness_lr, delay_compensation, dc_lambda, dc_mean_square, dc_references_max, "
     "staleness_auto, staleness_min, late, grace, weight_prediction, aggregation, trim"},
    {"RepeatedKey", "seed: 1\nname: x\nseed: 1\n", "j.yaml:3: seed: found a second time; the first is in line 1"},
    {"ListAsKey", "[a]: 1\n", "j.yaml:1: found a list as a key; allowed are names"},
    {"AllMistakesAtOnce", "seed: x\n\nname: a b\n",
     "j.yaml:1: seed: found 'x'; allowed is a whole number, at least 0\n"
     "j.yaml:3: name: found 'a b'; allowed is 1 to 100 letters, digits, '-', '_' and '.'"},
    {"SecondDocument", "seed: 1\n---\nseed: 2\n", "j.yaml:3: found a second document; allowed is one"},
    {"Anchor", "seed: &a 1\n", "j.yaml:1: found an anchor ('&...'); write values out"},
    {"Tag", "seed: !!int 1\n", "j.yaml:1: found the tag 'tag:yaml.org,2002:int'; write the value without it"},
    {"Tab", "training:\n\tepochs: 1\n", "j.yaml:2: found a tab at the start of the line; allowed are spaces"},
    // Combinations.
    {"NesterovWithoutMomentum", "optimizer:\n  nesterov: true\n",
     "j.yaml:2: optimizer.nesterov: found true without momentum; allowed is true with optimizer.momentum above 0"},
    {"MomentumWithAdam", "optimizer:\n  kind: adam\n  momentum: 0.9\n",
     "j.yaml:3: optimizer.momentum: found a value together with adam; allowed is only with optimizer.kind: sgd "
     "(add --set optimizer.momentum=0 to take the default back)"},
    {"BetaWithSgd", "optimizer:\n  beta1: 0.8\n",
     "j.yaml:2: optimizer.beta1: found a value together with sgd; allowed is only with optimizer.kind: adam or adamw "
     "(add --set optimizer.beta1=0.9 to take the default back)"},
    {"StalenessWithBsp", "consistency:\n  mode: bsp\n  staleness_max: 1\n",
     "j.yaml:3: consistency.staleness_max: found a value together with bsp; allowed is only with consistency.mode: "
     "ssp (add --set consistency.staleness_max=4 to take the default back)"},
    {"SoftsyncGroupsWithSsp", "consistency:\n  softsync_n: 2\n",
     "j.yaml:2: consistency.softsync_n: found a value together with ssp; allowed is only with consistency.mode: "
     "softsync "
     "(add --set consistency.softsync_n=1 to take the default back)"},
    {"QuorumWithSoftsync", "consistency: {mode: softsync, quorum: 1, quorum_deadline_ms: 5}\n",
     "j.yaml:1: consistency.quorum: found a value together with softsync; allowed is only with consistency.mode: "
     "quorum (add --set consistency.quorum=0.75 to take the default back)\n"
     "j.yaml:1: consistency.quorum_deadline_ms: found a value together with softsync; allowed is only with "
     "consistency.mode: quorum (add --set consistency.quorum_deadline_ms=0 to take the default back)"},
    {"QuorumOfFewerThanHalf", "consistency: {mode: quorum, quorum: 0.49}\n",
     "j.yaml:1: consistency.quorum: found '0.49'; allowed is a number from 0.5 to 1"},
    {"StalenessLrWithBsp", "consistency:\n  mode: bsp\n  staleness_lr: inverse\n",
     "j.yaml:3: consistency.staleness_lr: found a value together with bsp; allowed is only with consistency.mode: "
     "async, "
     "ssp or softsync (add --set consistency.staleness_lr=none to take the default back)"},
    {"StalenessLrWithQuorum", "consistency: {mode: quorum, staleness_lr: inverse}\n",
     "j.yaml:1: consistency.staleness_lr: found a value together with quorum; allowed is only with consistency.mode: "
     "async, ssp or softsync (add --set consistency.staleness_lr=none to take the default back)"},
    {"DelayCompensationWithBsp", "consistency: {mode: bsp, delay_compensation: constant, dc_lambda: 1}\n",
     "j.yaml:1: consistency.delay_compensation: found a value together with bsp; allowed is only with "
     "consistency.mode: "
     "async, ssp or softsync (add --set consistency.delay_compensation=none to take the default back)"},
    {"LambdaWithoutDelayCompensation", "consistency:\n  dc_lambda: 1\n",
     "j.yaml:2: consistency.dc_lambda: found a value together with delay_compensation: none; allowed is only with "
     "consistency.delay_compensation: constant or adaptive (add --set consistency.dc_lambda=0 to take the default "
     "back)"},
    {"MeanSquareWithConstant", "consistency: {delay_compensation: constant, dc_mean_square: 0.5}\n",
     "j.yaml:1: consistency.dc_mean_square: found a value together with delay_compensation: constant; allowed is only "
     "with consistency.delay_compensation: adaptive (add --set consistency.dc_mean_square=0.95 to take the default "
     "back)"},
    {"MomentumCorrectionWithBsp",
     "optimizer: {momentum: 0.9, momentum_correction: asynchrony}\nconsistency: {mode: bsp}\n",
     "j.yaml:1: optimizer.momentum_correction: found a value together with bsp; allowed is only with consistency.mode: "
     "async, ssp or softsync (add --set optimizer.momentum_correction=none to take the default back)"},
    {"MomentumCorrectionWithoutMomentum", "optimizer:\n  momentum_correction: asynchrony\n",
     "j.yaml:2: optimizer.momentum_correction: found asynchrony without momentum; allowed is asynchrony with "
     "optimizer.momentum above 0"},
    {"MomentumCorrectionWithAdam", "optimizer: {kind: adam, momentum_correction: asynchrony}\n",
     "j.yaml:1: optimizer.momentum_correction: found a value together with adam; allowed is only with optimizer.kind: "
     "sgd (add --set optimizer.momentum_correction=none to take the default back)"},
    {"LocalRateWithoutSteps", "local:\n  lr: 0.1\n",
     "j.yaml:2: local.lr: found a value together with neither local.steps nor local.epochs; allowed is only with "
     "local.steps or local.epochs above 0 (add --set local.lr=0.05 to take the default back)"},
    {"LocalWithoutAnOuterRate", "local: {steps: 10}\n",
     "j.yaml:1: optimizer.lr: found no value together with local training, whose outer learning rate it is; allowed is "
     "a value: 1 takes the mean of the workers' weights, 0.7 with momentum: 0.9 and nesterov: true is DiLoCo's"},
    {"LocalStepsAndEpochs", "local: {steps: 10, epochs: 2}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.epochs: found 2 together with local.steps: 10; allowed is exactly one of both above 0"},
    {"LocalRoundOfTooManySamples", "local: {steps: 1048576}\ntraining: {batch_size: 2048}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.steps: found 2147483648 samples a round; allowed is at most 1073741824 samples a round"},
    {"LocalLeaseInBsp", "local: {steps: 10, lease_s: 60}\nconsistency: {mode: bsp}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.lease_s: found a value together with bsp; allowed is only with consistency.mode: async, softsync "
     "or quorum, where nobody waits for one who is away (add --set local.lease_s=0 to take the default back)"},
    {"LocalOutlierFactorOfLessThanTheMedian", "local: {steps: 10, outlier_factor: 0.5}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.outlier_factor: found 0.5; allowed is a number above 1, or 0 to keep nothing out"},
    {"LocalMomentumWithAdam", "local: {steps: 10, optimizer: adam, momentum: 0.9}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.momentum: found a value together with adam; allowed is only with local.optimizer: sgd (add --set "
     "local.momentum=0 to take the default back)"},
    {"LocalBetaWithSgd", "local: {steps: 10, beta2: 0.9}\noptimizer: {lr: 1}\n",
     "j.yaml:1: local.beta2: found a value together with sgd; allowed is only with local.optimizer: adam or adamw (add "
     "--set local.beta2=0.999 to take the default back)"},
    {"LocalWithSeveralStepsInFlight", "local: {steps: 10}\nwire: {window: 2}\noptimizer: {lr: 1}\n",
     "j.yaml:2: wire.window: found a value together with local training; allowed is only with local.steps: 0 and "
     "local.epochs: 0 (add --set wire.window=1 to take the default back)"},
    {"LocalWithWhatIsForGradients",
     "local: {epochs: 2}\ntraining: {accumulate: 2, batch: balance}\n"
     "consistency: {mode: async, delay_compensation: constant}\noptimizer: {lr: 1, scaling: linear}\n",
     "j.yaml:2: training.batch: found a value together with local.epochs; allowed is only with local.steps above 0, or "
     "no local training (add --set training.batch=fixed to take the default back)\n"
     "j.yaml:2: training.accumulate: found a value together with local training; allowed is only with local.steps: 0 "
     "and local.epochs: 0 (add --set training.accumulate=1 to take the default back)\n"
     "j.yaml:3: consistency.delay_compensation: found a value together with local training; allowed is only with "
     "local.steps: 0 and local.epochs: 0 (add --set consistency.delay_compensation=none to take the default back)\n"
     "j.yaml:4: optimizer.scaling: found a value together with local training; allowed is only with local.steps: 0 and "
     "local.epochs: 0 (add --set optimizer.scaling=none to take the default back)"},
    {"OneFilter", "model:\n  kind: cnn\n  filters: [32]\n",
     "j.yaml:3: model.filters: found 1 item; allowed is exactly two, one for each convolution"},
    {"FiltersWithMlp", "model:\n  filters: [32, 64]\n",
     "j.yaml:2: model.filters: found a value together with mlp; allowed is only with model.kind: cnn "
     "(add --set model.filters=[] to take the default back)"},
    {"BatchNormWithMlp", "model:\n  batch_norm: true\n",
     "j.yaml:2: model.batch_norm: found a value together with mlp; allowed is only with model.kind: cnn "
     "(add --set model.batch_norm=false to take the default back)"},
    {"HiddenWithResnet", "model:\n  kind: resnet18\n  hidden: [64]\n",
     "j.yaml:3: model.hidden: found a value together with resnet18; allowed is only with model.kind: mlp, cnn or "
     "texture_cnn_2 (add --set model.hidden=[] to take the default back)"},
    {"BatchNormWithResnet", "model:\n  kind: resnet18\n  batch_norm: true\n",
     "j.yaml:3: model.batch_norm: found a value together with resnet18; allowed is only with model.kind: cnn "
     "(add --set model.batch_norm=false to take the default back)"},
    {"UnknownDevice", "worker:\n  devices: [cuda]\n",
     "j.yaml:2: worker.devices: found 'cuda'; allowed is cpu, cuda:0, cuda:1 and so on, or auto alone"},
    {"AutoBesideOthers", "worker:\n  devices: [cuda:0, auto]\n",
     "j.yaml:2: worker.devices: found 'auto'; allowed is cpu, cuda:0, cuda:1 and so on, or auto alone"},
    {"GpuTwice", "worker:\n  devices: [cuda:0, cuda:1, cuda:0]\n",
     "j.yaml:2: worker.devices: found cuda:0 twice; allowed is each GPU once"},
    {"GpuAndCpu", "worker:\n  devices: [cuda:0, cpu]\n",
     "j.yaml:2: worker.devices: found CPUs and GPUs together; allowed is one kind: a group waits for its slowest "
     "device; worker.groups has several groups"},
    {"MapForDevices", "worker:\n  devices: {cuda: 0}\n",
     "j.yaml:2: worker.devices: found a section of keys; allowed is one or a list in [ ], each text"},
    {"MoreDevicesThanSamples", "worker:\n  devices: [cpu, cpu]\ntraining: {batch_size: 1}\n",
     "j.yaml:2: worker.devices: found 2 devices; allowed is at most training.batch_size (1), each gets a part of the "
     "batch"},
    {"StagesOnOtherDevices", "worker:\n  stages: 2\n",
     "j.yaml:2: worker.devices: found 0 devices with worker.stages: 2; allowed is as many as worker.stages"},
    {"StagesOfResnet", "model: {kind: resnet18}\nworker:\n  stages: 2\n  devices: [cpu, cpu]\n",
     "j.yaml:3: worker.stages: found 2 with model.kind: resnet18; allowed is 1, or model.kind: mlp, cnn, "
     "vit_tiny, vit_small or vit_base"},
    {"StagesWithBatchNorm", "model: {kind: cnn, batch_norm: true}\nworker:\n  stages: 2\n  devices: [cpu, cpu]\n",
     "j.yaml:3: worker.stages: found 2 with model.batch_norm; allowed is 1, or model.batch_norm: false: stages see "
     "parts of a batch"},
    {"MicroBatchesWithoutStages", "worker:\n  micro_batches: 4\n",
     "j.yaml:2: worker.micro_batches: found a value together with no stages; allowed is only with worker.stages above "
     "1 "
     "(add --set worker.micro_batches=0 to take the default back)"},
    {"GammaWithCosine", "optimizer: {schedule: {kind: cosine, gamma: 0.5}}\n",
     "j.yaml:1: optimizer.schedule.gamma: found a value together with cosine; allowed is only with "
     "optimizer.schedule.kind: step "
     "(add --set optimizer.schedule.gamma=0.1 to take the default back)"},
    {"FinalFractionWithStep", "optimizer: {schedule: {kind: step, final_fraction: 0.5}}\n",
     "j.yaml:1: optimizer.schedule.final_fraction: found a value together with step; allowed is only with "
     "optimizer.schedule.kind: cosine "
     "(add --set optimizer.schedule.final_fraction=0 to take the default back)"},
    {"WarmupLongerThanRun", "optimizer: {schedule: {warmup_epochs: 6}}\n",
     "j.yaml:1: optimizer.schedule.warmup_epochs: found 6; allowed is at most training.epochs (5)"},
    {"StallShorterThanHeartbeat", "timeouts: {stall_ms: 100}\n",
     "j.yaml:1: timeouts.stall_ms: found 100; allowed is at least twice timeouts.heartbeat_ms (600)"},
    {"FewerStreamsThanWorkers", "cluster: {workers: 3}\nlimits:\n  streams_max: 2\n",
     "j.yaml:3: limits.streams_max: found 2; allowed is at least cluster.workers (3), each has a connection to every "
     "server"},
    {"UnknownEncoding", "wire:\n  encoding: fp8\n",
     "j.yaml:2: wire.encoding: found 'fp8'; allowed is one of fp32, bf16, fp16, int8, and topk:F with a fraction F "
     "above 0 and at most 1"},
    {"TopKOfNothing", "wire: {encoding: topk:0}\n",
     "j.yaml:1: wire.encoding: found 'topk:0'; allowed is one of fp32, bf16, fp16, int8, and topk:F with a fraction F "
     "above 0 and at most 1"},
    {"PulledInt8", "wire: {pull_encoding: int8}\n",
     "j.yaml:1: wire.pull_encoding: found 'int8'; allowed is one of fp32, bf16"},
    {"GroupsNoList", "wire:\n  groups: {match: a}\n",
     "j.yaml:2: wire.groups: found a section of keys; allowed is a list of sections of keys: match, encoding"},
    {"EncodingOfTheSecondGroup",
     "wire:\n  groups:\n    - {match: a, encoding: bf16}\n    - match: b\n      encoding: x\n",
     "j.yaml:5: wire.groups[1].encoding: found 'x'; allowed is one of fp32, bf16, fp16, int8, and topk:F with a "
     "fraction F above 0 and at most 1"},
    {"GroupThatMatchesNothing", "wire:\n  groups:\n    - {encoding: bf16}\n",
     "j.yaml:3: wire.groups[0].match: found no text; allowed is names of tensors, such as \"*.bias\""},
    {"UnknownKeyOfAGroup", "wire:\n  groups: [{match: a, codec: bf16}]\n",
     "j.yaml:2: found the unknown key 'wire.groups[0].codec'; allowed are match, encoding"},
    {"RuleOnAFieldThatNobodySet", "cluster: {workers: 2000}\n",
     "j.yaml: limits.streams_max: found 1024; allowed is at least cluster.workers (2000), each has a connection to "
     "every server"},
};

INSTANTIATE_TEST_SUITE_P(Table, JobFileRefuses, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(JobFile, EmptyFileIsAValidJob) {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "model:\n"}) EXPECT_EQ(MessageOf(text), "OK");
}

TEST(JobFile, ReadsEveryKindOfValue) {
  const absl::StatusOr<job::Job> job = ParseJob(kFull, "j.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "trial-1");
  EXPECT_EQ(job->seed(), 1000000);
  EXPECT_EQ(job->model().kind(), job::Model::CNN);
  EXPECT_THAT(job->model().filters(), ::testing::ElementsAre(32, 64));
  EXPECT_EQ(job->data().path(), "/data/a: b");
  EXPECT_EQ(job->training().batch_size(), 100);
  EXPECT_EQ(job->optimizer().lr(), 0.05);
  EXPECT_EQ(job->optimizer().momentum(), 0.9);
  EXPECT_TRUE(job->optimizer().nesterov());
  EXPECT_THAT(job->worker().devices(), ::testing::ElementsAre("cpu", "cpu"));
}

TEST(JobFile, KindOfTheCallerIsOnlyForJobsThatNameNone) {
  const auto kind_of = [](const std::string& text) {
    const absl::StatusOr<job::Job> job = ParseJob(text, "j.yaml", {}, job::Model::EXTERNAL);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->model().kind() : job::Model::MLP;
  };
  // This setting is refused in jobs that are not of scripts.
  EXPECT_EQ(kind_of("training: {tokens_per_sample: 64}\n"), job::Model::EXTERNAL);
  EXPECT_EQ(kind_of("model: {kind: cnn}\n"), job::Model::CNN);
}

TEST(JobFile, DevicesAreOneOrAList) {
  for (const char* text : {"worker:\n  devices: auto\n", "worker: {devices: [auto]}\n"}) {
    EXPECT_THAT(ParseJob(text, "j.yaml")->worker().devices(), ::testing::ElementsAre("auto")) << text;
  }
  EXPECT_THAT(ParseJob("worker: {devices: [cuda:0, cuda:11]}\n", "j.yaml")->worker().devices(),
              ::testing::ElementsAre("cuda:0", "cuda:11"));
  EXPECT_THAT(ParseJob("worker:\n  devices:\n  - cuda:1\n", "j.yaml", {"worker.devices=cuda:0"})->worker().devices(),
              ::testing::ElementsAre("cuda:0"));
}

TEST(JobFile, LargestSeedIsExact) {
  EXPECT_EQ(ParseJob("seed: 18446744073709551615", "j.yaml")->seed(), 18446744073709551615u);
}

TEST(JobFile, AliasBombsAreRefused) {
  EXPECT_THAT(MessageOf("name: &a x\nseed: *a\n"), HasSubstr("found an anchor"));
  EXPECT_THAT(MessageOf("seed: *a\n"), HasSubstr("j.yaml:1: "));
}

TEST(JobFile, DeepNestingIsRefused) {
  EXPECT_THAT(MessageOf(std::string(100000, '[')), HasSubstr("found nesting deeper than 16"));
  std::string blocks;
  for (int depth = 0; depth < 300; ++depth) blocks += std::string(static_cast<size_t>(depth), ' ') + "a:\n";
  EXPECT_THAT(MessageOf(blocks), HasSubstr("found nesting deeper than 16"));
}

TEST(JobFile, HugeFilesAreRefused) {
  EXPECT_EQ(MessageOf(std::string((1 << 20) + 1, '#')), "j.yaml:1: found 1048577 bytes; allowed are at most 1048576");
}

TEST(JobFile, ManyMistakesAreCutShort) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "unknown_" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(MessageOf(text), HasSubstr("\n... and 10 more"));
}

TEST(JobFileOverride, ReplacesWhatTheFileSays) {
  const absl::StatusOr<job::Job> job = ParseJob(kFull, "j.yaml",
                                                {"optimizer.lr=0.1", "model.hidden=[64,32]", "worker={devices: [cpu]}",
                                                 "data.path=/a b: #c", "output.folder=", "optimizer.lr=0.2"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->optimizer().lr(), 0.2);
  EXPECT_THAT(job->model().hidden(), ::testing::ElementsAre(64, 32));
  EXPECT_THAT(job->worker().devices(), ::testing::ElementsAre("cpu"));
  EXPECT_EQ(job->data().path(), "/a b: #c");
  EXPECT_EQ(job->output().folder(), "");
}

TEST(JobFile, ServerIsWaitedForTwiceAsLongAsTheScheduler) {
  EXPECT_EQ(MessageOf("durability: {server_return_s: 20, scheduler_return_s: 10}"), "OK");
  EXPECT_THAT(MessageOf("durability:\n  server_return_s: 20\n"),
              HasSubstr(":2: durability.scheduler_return_s: found 60, the default; allowed is at most half of "
                        "durability.server_return_s (10)"));
  EXPECT_THAT(MessageOf("durability: {server_return_s: 20, scheduler_return_s: 11}"), HasSubstr("found 11; allowed"));
  EXPECT_EQ(MessageOf("durability: {mode: none, server_return_s: 20}"), "OK");
}

TEST(JobFileOverride, ReplacesAMapWhole) {
  const std::string yaml = "worker: {slowdown: {1: 2, 3: 4.5}}\n";
  const absl::StatusOr<job::Job> read = ParseJob(yaml, "j.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->worker().slowdown().size(), 2u);
  EXPECT_EQ(read->worker().slowdown().at(3), 4.5);
  const absl::StatusOr<job::Job> job = ParseJob(yaml, "j.yaml", {"worker.slowdown={2: 12}"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->worker().slowdown().size(), 1u);
  EXPECT_EQ(job->worker().slowdown().at(2), 12);
  EXPECT_EQ(MessageOf(yaml, {"worker.slowdown={2: 0}"}),
            "--set worker.slowdown={2: 0}: worker.slowdown[2]: found '0'; allowed is a number from 1 to 10000");
  EXPECT_EQ(MessageOf(yaml, {"worker.slowdown.2=3"}),
            "--set worker.slowdown.2=3: found keys below 'slowdown'; allowed is a map in { }");
}

TEST(JobFileOverride, ReplacesAListOfSectionsWhole) {
  const absl::StatusOr<job::Job> job =
      ParseJob("wire: {groups: [{match: a, encoding: int8}, {match: b}]}", "j.yaml",
               {"wire.encoding=topk:0.05", "wire.groups=[{match: \"*.bias\", encoding: bf16}]"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->wire().encoding(), "topk:0.05");
  ASSERT_EQ(job->wire().groups_size(), 1);
  EXPECT_EQ(job->wire().groups(0).match(), "*.bias");
  EXPECT_EQ(job->wire().groups(0).encoding(), "bf16");
  EXPECT_EQ(MessageOf("", {"wire.groups.match=a"}),
            "--set wire.groups.match=a: found keys below 'groups'; allowed is a list of sections of keys");
}

TEST(JobFileOverride, MistakesNameTheOverride) {
  EXPECT_EQ(MessageOf("", {"optimizer.lr=x"}),
            "--set optimizer.lr=x: optimizer.lr: found 'x'; allowed is a number from 0 to 1000");
  EXPECT_EQ(MessageOf("", {"optimizer"}), "--set optimizer: found no KEY=VALUE; allowed is e.g. optimizer.lr=0.1");
  EXPECT_EQ(MessageOf("", {"optimiser.lr=1"}),
            "--set optimiser.lr=1: found the unknown key 'optimiser'; did you mean 'optimizer'? Allowed are name, "
            "seed, model, data, training, optimizer, consistency, cluster, worker, wire, timeouts, output, network, "
            "limits, guard, local, durability, checkpoint, security, simulation, power");
  EXPECT_EQ(MessageOf("", {"seed.x=1"}),
            "--set seed.x=1: found keys below 'seed'; allowed is a whole number, at least 0");
  EXPECT_EQ(MessageOf("", {"seed=[1"}),
            "--set seed=[1: seed: found a value that is not YAML (found no ',' or ']' where one must be; allowed is "
            "[VALUE, VALUE]); allowed is a whole number, at least 0");
  EXPECT_EQ(MessageOf("consistency: {mode: bsp}", {"consistency.staleness_max=1"}),
            "--set consistency.staleness_max=1: consistency.staleness_max: found a value together with bsp; allowed "
            "is only with consistency.mode: ssp (add --set consistency.staleness_max=4 to take the default back)");
}

TEST(JobFileOverride, TakesBackWhatAnotherModeOrModelDoesNotKnow) {
  EXPECT_EQ(MessageOf("consistency: {mode: bsp, staleness_max: 1}\nmodel: {filters: [8, 8]}",
                      {"consistency.staleness_max=4", "model.filters=[]"}),
            "OK");
}

TEST(JobFile, ResolvedYamlReadsBackEqual) {
  for (const char* text :
       {"", kFull, "optimizer: {kind: adamw, lr: 0.0003, epsilon: 1e-12}",
        "wire: {encoding: topk:0.01, groups: [{match: \"*.bias\"}, {match: a, encoding: bf16}]}",
        "data: {path: \"a\\tb\\\\ \\\"c\\\"\"}", "consistency: {mode: bsp}", "worker: {slowdown: {10: 1.5, 2: 12}}",
        "output: {trackers: [mlflow, wandb]}", "consistency: {mode: softsync, softsync_n: 2, staleness_lr: inverse}",
        "consistency: {delay_compensation: adaptive, dc_mean_square: 0, dc_references_max: 3}",
        "model: {kind: external}\nconsistency: {weight_prediction: auto}",
        "optimizer: {kind: adam}\nconsistency: {weight_prediction: auto}",
        "optimizer: {momentum: 0.9, momentum_correction: asynchrony, scaling: linear}",
        "consistency: {mode: quorum, quorum: 0.9, quorum_deadline_ms: 100, weighting: uniform, late: count}"}) {
    const absl::StatusOr<job::Job> job = ParseJob(text, "j.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    const absl::StatusOr<job::Job> back = ParseJob(ToYaml(*job), "resolved.yaml");
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToYaml(*job);
    EXPECT_TRUE(Same(*back, Resolve(*job))) << ToYaml(*job);
    EXPECT_TRUE(Same(Resolve(*back), *back));
    EXPECT_EQ(Fingerprint(*back), Fingerprint(*job));
  }
}

TEST(JobFile, ResolveNamesTheLayers) {
  EXPECT_THAT(Resolve(*ParseJob("", "j")).model().hidden(), ::testing::ElementsAre(192));
  const job::Job cnn = Resolve(*ParseJob("model: {kind: cnn}", "j"));
  EXPECT_THAT(cnn.model().hidden(), ::testing::ElementsAre(128));
  EXPECT_THAT(cnn.model().filters(), ::testing::ElementsAre(32, 64));
  EXPECT_THAT(cnn.worker().devices(), ::testing::IsEmpty());
  const job::Job resnet = Resolve(*ParseJob("model: {kind: resnet18}", "j"));
  EXPECT_THAT(resnet.model().hidden(), ::testing::IsEmpty());
  EXPECT_THAT(resnet.model().filters(), ::testing::IsEmpty());
}

TEST(Fingerprint, IsTheSameInEveryProcess) {
  const uint64_t first = Fingerprint(*ParseJob("seed: 1", "j"));
  for (const char* const same : {"", "worker: {devices: cpu}"}) EXPECT_EQ(first, Fingerprint(*ParseJob(same, "j")));
  EXPECT_EQ(first, Fingerprint(*ParseJob("output: {folder: x}\nnetwork: {metrics_port: 1}\ndata: {path: y}\n"
                                         "worker: {threads: 2}\ncluster: {worker_restarts_max: 3}",
                                         "j")));
  EXPECT_NE(first, Fingerprint(*ParseJob("seed: 2", "j")));
  const uint64_t slow = Fingerprint(*ParseJob("worker: {slowdown: {1: 2, 2: 3, 3: 4, 4: 5}}", "j"));
  EXPECT_NE(first, slow);
  EXPECT_EQ(slow, Fingerprint(*ParseJob("worker: {slowdown: {4: 5, 3: 4, 2: 3, 1: 2}}", "j")));
  EXPECT_NE(first, Fingerprint(*ParseJob("worker: {devices: [cpu, cpu]}", "j")));
}

// With a setting more or less in the schema these stay what they are: builds that differ so much may be in one run.
TEST(Fingerprint, CountsNoSettingThatHasItsDefault) {
  EXPECT_EQ(Fingerprint(*ParseJob("", "j")), 5573036644915020767u);
  EXPECT_EQ(Fingerprint(*ParseJob("seed: 2\noptimizer: {lr: 0.1}\ncluster: {workers: 3}", "j")), 15187264932501483515u);
  job::Job job = Resolve(*ParseJob("seed: 2", "j"));
  job_file::ClearDefaults(job);
  EXPECT_EQ(job.seed(), 2);
  EXPECT_FALSE(job.has_guard() || job.has_training() || job.has_optimizer());
}

// Random bytes, lines and numbers changed in a valid file: refused or read, never a crash or a hang.
TEST(JobFileFuzz, MutatedFilesNeverCrash) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"\t",    "\n",   ":",   "- ", "[", "]", "{",     "}",     "&a ", "*a",   "!",
                                "|",     ">",    "'",   "\"", "#", "%", "---\n", "...\n", "? ",  "\xff", "\xef\xbb\xbf",
                                "1e999", "<<: ", "\\x", "  "};
  const std::string base = kFull;
  const auto below = [&random](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  for (int round = 0; round < 20000; ++round) {
    std::string text = base;
    for (size_t changes = 1 + below(6); changes > 0 && !text.empty(); --changes) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(20));
          break;
        case 2:
          text.insert(at, pieces[below(std::size(pieces))]);
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(30)));
      }
    }
    const absl::StatusOr<job::Job> job = ParseJob(text, "fuzz.yaml", {text.substr(0, below(text.size() + 1))});
    if (!job.ok()) {
      ASSERT_FALSE(job.status().message().empty()) << text;
    } else {
      ASSERT_TRUE(ParseJob(ToYaml(*job), "resolved.yaml").ok()) << text << "\n" << ToYaml(*job);
    }
  }
}

}  // namespace
}  // namespace slackline::job_file_test

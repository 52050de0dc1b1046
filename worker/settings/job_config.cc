#include "worker/settings/job_config.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/slowdown.h"
#include "common/job/data_formats.h"
#include "common/job/job_kinds.h"
#include "common/job/job_timeouts.h"
#include "common/job/push_samples.h"
#include "common/process/device.h"
#include "worker/life/patience.h"
#include "worker/settings/local_job_config.h"

namespace slackline::worker {
namespace {

std::vector<uint32_t> OrElse(const google::protobuf::RepeatedField<uint32_t>& values,
                             absl::Span<const uint32_t> otherwise) {
  if (values.empty()) return {otherwise.begin(), otherwise.end()};
  return {values.begin(), values.end()};
}

Initialisation MakeInitialisation(const job::Model& model) {
  Initialisation init;
  init.deviation = model.init_std();
  switch (model.init()) {
    case job::Model::DEFAULT:
      init.kind = Initialisation::Kind::kReference;
      break;
    case job::Model::KAIMING_NORMAL:
      init.kind = Initialisation::Kind::kKaimingNormal;
      break;
    case job::Model::KAIMING_UNIFORM:
      init.kind = Initialisation::Kind::kKaimingUniform;
      break;
    case job::Model::XAVIER_UNIFORM:
      init.kind = Initialisation::Kind::kXavierUniform;
      break;
    case job::Model::TRUNCATED_NORMAL:
      init.kind = Initialisation::Kind::kTruncatedNormal;
      break;
  }
  return init;
}

ModelSpec MakeModelSpec(const job::Model& model) {
  ModelSpec spec;
  spec.classes = model.classes();
  spec.kind = FactsOf(model).kind;
  spec.hidden = OrElse(model.hidden(), FactsOf(model).hidden);
  spec.filters = OrElse(model.filters(), FactsOf(model).filters);
  spec.batch_norm = model.batch_norm();
  spec.dropout = DropoutOf(model);
  spec.stochastic_depth = StochasticDepthOf(model);
  spec.patch_size = model.patch_size();
  spec.checkpointing = model.checkpointing();
  spec.init = MakeInitialisation(model);
  spec.torchscript = model.torchscript();
  spec.libraries.assign(model.libraries().begin(), model.libraries().end());
  return spec;
}

// The job file's rules have checked that these are numbers, one a class.
std::vector<float> MakeClassWeights(const job::Training& training) {
  std::vector<float> weights;
  for (const std::string& text : training.class_weights()) {
    float weight = 0;
    if (!absl::SimpleAtof(text, &weight)) return {};
    weights.push_back(weight);
  }
  return weights;
}

LossKind MakeLoss(job::Training::Loss loss) {
  switch (loss) {
    case job::Training::MSE:
      return LossKind::kMeanSquare;
    case job::Training::BCE:
      return LossKind::kBinaryCrossEntropy;
    case job::Training::MODEL:
      return LossKind::kModel;
    case job::Training::CROSS_ENTROPY:
      break;
  }
  return LossKind::kCrossEntropy;
}

SelfSupervised MakeSelfSupervised(const job::SelfSupervised& job) {
  SelfSupervised made;
  switch (job.method()) {
    case job::SelfSupervised::NONE:
      return made;
    case job::SelfSupervised::CONTRASTIVE:
      made.method = SelfSupervised::Method::kContrastive;
      break;
    case job::SelfSupervised::SELF_DISTILLATION:
      made.method = SelfSupervised::Method::kSelfDistillation;
      break;
  }
  made.views = job.views();
  made.temperature = job.temperature();
  // The job file's rules have counted them, and empty ones were filled.
  if (job.projection_size() == 2) {
    made.hidden = job.projection(0);
    made.outputs = job.projection(1);
  }
  made.teacher_momentum = job.teacher_momentum();
  made.neighbours = job.neighbours().count();
  made.neighbour_temperature = job.neighbours().temperature();
  return made;
}

std::vector<ParameterGroupRule> MakeGroupRules(const job::Optimizer& optimizer) {
  std::vector<ParameterGroupRule> rules;
  for (const job::ParameterGroup& group : optimizer.groups()) rules.push_back({group.match(), group.frozen()});
  return rules;
}

SameHost ToSameHost(job::Wire::SameHost same_host) {
  switch (same_host) {
    case job::Wire::SHARED_MEMORY:
      return SameHost::kSharedMemory;
    case job::Wire::UNIX:
      return SameHost::kUnix;
    case job::Wire::TCP:
      return SameHost::kTcp;
  }
  return SameHost::kTcp;
}

// The job file's rules have checked the text.
codec::Codec ToCodec(const std::string& text) { return codec::ParseCodec(text).value(); }

PushCodecs MakePushCodecs(const job::Wire& wire) {
  PushCodecs codecs;
  codecs.codec = ToCodec(wire.encoding());
  for (const job::WireGroup& group : wire.groups()) {
    codecs.groups.push_back({group.match(), ToCodec(group.encoding())});
  }
  switch (wire.error_feedback()) {
    case job::Wire::AUTO:
      codecs.error_feedback = PushCodecs::ErrorFeedback::kAuto;
      break;
    case job::Wire::ALWAYS:
      codecs.error_feedback = PushCodecs::ErrorFeedback::kAlways;
      break;
    case job::Wire::NEVER:
      codecs.error_feedback = PushCodecs::ErrorFeedback::kNever;
      break;
  }
  return codecs;
}

const google::protobuf::RepeatedPtrField<std::string>& DevicesOf(const job::Worker& worker, uint32_t group) {
  return worker.groups_size() == 0 ? worker.devices() : worker.groups(static_cast<int>(group)).devices();
}

// Of all workers of the job, as if they ran on one machine. A worker that has none counts as one.
uint32_t CpuDevices(const job::Job& job) {
  const auto count = [](const auto& devices) { return static_cast<uint32_t>(absl::c_count(devices, "cpu")); };
  // A node group is one worker of several processes.
  const uint32_t processes = job.worker().node_group() ? job.worker().per_node() : 1;
  const uint32_t workers = job.cluster().workers() * processes;
  const int groups = job.worker().groups_size();
  if (groups == 0) return workers * std::max(1u, count(job.worker().devices()));
  uint32_t cpus = 0;
  for (const job::WorkerGroup& group : job.worker().groups()) cpus += std::max(1u, count(group.devices()));
  return std::max(1u, workers / static_cast<uint32_t>(groups)) * cpus;
}

Precision PrecisionOf(const job::Worker& worker, uint32_t group) {
  using Own = job::WorkerGroup;
  const Own::Precision own = worker.groups_size() > 0 ? worker.groups(static_cast<int>(group)).precision() : Own::SAME;
  if (own == Own::BF16 || (own == Own::SAME && worker.precision() == job::Worker::BF16)) return Precision::kBf16;
  if (own == Own::FP16 || (own == Own::SAME && worker.precision() == job::Worker::FP16)) return Precision::kFp16;
  return Precision::kFloat32;
}

// Of the share's GPUs; none, where that of one is not known.
std::vector<size_t> NodesOf(const std::vector<uint32_t>& gpus, const MachineShape& machine) {
  std::vector<size_t> nodes;
  for (const uint32_t gpu : gpus) {
    if (gpu >= machine.gpu_nodes.size() || !machine.gpu_nodes[gpu]) return {};
    nodes.push_back(*machine.gpu_nodes[gpu]);
  }
  return nodes;
}

CoreShare ShareOf(const job::Worker& worker, uint32_t group, const MachineShape& machine) {
  const uint32_t gpus = machine.gpus;
  CoreShare share{.key = "worker.cores", .wish = {}};
  auto cores = &worker.cores();
  if (worker.groups_size() > 0 && worker.groups(static_cast<int>(group)).cores_size() > 0) {
    cores = &worker.groups(static_cast<int>(group)).cores();
    share.key = absl::StrCat("worker.groups[", group, "].cores");
  }
  // The job file's rules have checked the text.
  share.wish = ParseCores(std::vector<std::string>(cores->begin(), cores->end())).value();
  const auto& devices = DevicesOf(worker, group);
  const bool any = devices.size() == 1 && devices[0] == kAutoDevices;
  share.gpus = any ? gpus > 0 : !devices.empty() && devices[0] != "cpu";
  share.devices = any ? std::max(1u, gpus) : static_cast<uint32_t>(std::max(1, devices.size()));
  std::vector<uint32_t> own;
  for (uint32_t i = 0; share.gpus && i < share.devices; ++i) {
    own.push_back(any ? i : ParseDevice(devices[static_cast<int>(i)]).value_or(Device{}).index);
  }
  share.near = NodesOf(own, machine);
  return share;
}

WorkerConfig::Metering MakeMetering(const job::Power& power) {
  WorkerConfig::Metering metering;
  metering.on = power.meter();
  switch (power.gpus()) {
    case job::Power::USED:
      metering.gpus = WorkerConfig::Metering::Gpus::kUsed;
      break;
    case job::Power::ALL:
      metering.gpus = WorkerConfig::Metering::Gpus::kAll;
      break;
    case job::Power::NONE:
      metering.gpus = WorkerConfig::Metering::Gpus::kNone;
      break;
  }
  metering.options.sysfs = power.sysfs();
  metering.options.nvml_library = power.nvml_library();
  metering.every = absl::Milliseconds(power.sample_every_ms());
  metering.idle = absl::Seconds(power.idle_s());
  return metering;
}

images::Augment MakeAugment(const job::Augment& augment) {
  using A = job::Augment;
  return {.flip_horizontal = augment.flip() == A::HORIZONTAL || augment.flip() == A::BOTH,
          .flip_vertical = augment.flip() == A::VERTICAL || augment.flip() == A::BOTH,
          .crop_padding = augment.crop_padding(),
          .crop_area_min = augment.crop_area_min(),
          .brightness = augment.brightness(),
          .contrast = augment.contrast(),
          .saturation = augment.saturation(),
          .rand_augment = augment.rand_augment(),
          .rand_augment_magnitude = augment.rand_augment_magnitude(),
          .grey = augment.grey(),
          .blur = augment.blur(),
          .mixup_alpha = augment.mixup_alpha(),
          .cutmix_alpha = augment.cutmix_alpha()};
}

}  // namespace

std::vector<CoreShare> CoreShares(const job::Job& job, const MachineShape& machine) {
  const uint32_t groups = std::max(1u, static_cast<uint32_t>(job.worker().groups_size()));
  std::vector<CoreShare> shares;
  for (uint32_t seat = 0; seat < machine.workers; ++seat) {
    shares.push_back(ShareOf(job.worker(), (machine.first + seat) % groups, machine));
  }
  return shares;
}

WorkerConfig MakeWorkerConfig(const job::Job& job, const WorkerIdentity& self, uint32_t cores) {
  WorkerConfig config;
  config.model = MakeModelSpec(job.model());
  config.model.groups = MakeGroupRules(job.optimizer());
  config.model.loss = MakeLoss(job.training().loss());
  config.model.label_smoothing = job.training().label_smoothing();
  config.model.class_weights = MakeClassWeights(job.training());
  config.model.self_supervised = MakeSelfSupervised(job.training().self_supervised());
  config.neighbours_max = job.training().self_supervised().neighbours().train_images_max();
  config.model.precision = PrecisionOf(job.worker(), self.group);
  config.model.channels_last = job.worker().channels_last();
  config.model.cudnn_benchmark = job.worker().cudnn_benchmark();
  config.model.cuda_graphs = job.worker().cuda_graphs();
  config.trainer.loss_scale = {.on = config.model.precision == Precision::kFp16,
                               .initial = job.worker().loss_scale(),
                               .growth_steps = job.worker().loss_scale_growth_steps()};
  config.class_weights_balanced = job.training().class_weights_size() == 1 && config.model.class_weights.empty();
  config.seed = job.seed();
  config.data = {.settings = job.data(),
                 .classes = job.model().classes(),
                 .evaluation_split = job.data().evaluation_split() == job::Data::VALIDATION ? "validation" : "test",
                 .last_split = job.data().test_at_end() ? "test" : "",
                 .give_up = absl::Milliseconds(job.timeouts().startup_ms())};
  config.data_threads = job.data().threads();
  config.augment = MakeAugment(job.data().augment());
  if (config.model.self_supervised.on()) config.augment.views = config.model.self_supervised.views;
  config.normalisation = {.mean = job.data().mean(), .deviation = job.data().deviation()};
  config.prefetch_batches = job.data().prefetch_batches();
  config.evaluation_batch_size = job.training().evaluation_batch_size();
  // Whole pictures with their masks: no more at a time than in training.
  if (job_file::Takes(job.data().format(), job_file::kObjects)) {
    config.evaluation_batch_size = std::min(config.evaluation_batch_size, job.training().batch_size());
  }
  config.trainer.averaged = job.optimizer().ema() > 0;
  config.trainer.predicted = PredictsWeights(job);
  config.trainer.seed = job.seed();
  config.trainer.balanced = job.data().sampling() == job::Data::BALANCED;
  config.trainer.by_file = job.data().sampling() == job::Data::BY_FILE;
  config.trainer.batch_size = BatchSizeOf(job, self.group);
  config.trainer.accumulate = job.training().accumulate();
  config.trainer.local = MakeLocalConfig(job.local());
  config.trainer.chunk_bytes = job.wire().chunk_bytes();
  config.trainer.window = job.wire().window();
  // The same weights come in another order: there is nothing to choose. A teacher takes all of them at once.
  config.trainer.pull_by_layers = !config.model.self_supervised.on();
  config.trainer.slowdown = SlowdownOf(self.name, job.worker());
  config.push_codecs = MakePushCodecs(job.wire());
  if (job.wire().pull_encoding() == job::Wire::BF16) config.trainer.pull_encoding = codec::Encoding::kBf16;
  config.trainer.same_host = ToSameHost(job.wire().same_host());
  config.trainer.timeouts = TimeoutsOf(job);
  config.trainer.room_max = absl::Seconds(job.checkpoint().timeout_s());
  if (job.durability().mode() != job::Durability::NONE) {
    // The scheduler counts from when it has found the death, and is the one to say that it is over.
    config.trainer.server_return = ServerReturn(job.durability(), config.trainer.timeouts);
    config.scheduler_return = absl::Seconds(job.durability().scheduler_return_s());
  }
  const auto& devices = DevicesOf(job.worker(), self.group);
  config.devices.assign(devices.begin(), devices.end());
  config.stages = job.worker().stages();
  config.metering = MakeMetering(job.power());
  config.weights = job.model().weights();
  config.micro_batches = job.worker().micro_batches();
  if (!job.worker().trace().empty()) config.trace = TracePath(job.worker().trace(), self.name);
  config.trace_otlp = job.worker().trace_otlp();
  config.compute_threads =
      job.worker().threads() > 0 ? job.worker().threads() : std::max<uint32_t>(1, cores / CpuDevices(job));
  config.threads_by_cores = job.worker().threads() == 0;
  return config;
}

absl::StatusOr<ModelSpec> FitModel(const WorkerConfig& config, const images::Dataset& train) {
  ModelSpec spec = config.model;
  spec.channels = train.channels();
  spec.height = train.height();
  spec.width = train.width();
  if (!config.class_weights_balanced) return spec;
  for (const uint64_t count : train.LabelCounts(spec.classes)) {
    if (count == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("training.class_weights: balanced needs training images of every "
                       "class; class ",
                       spec.class_weights.size(), " of ", spec.classes, " has none"));
    }
    spec.class_weights.push_back(static_cast<float>(static_cast<double>(train.size()) /
                                                    (static_cast<double>(spec.classes) * static_cast<double>(count))));
  }
  return spec;
}

}  // namespace slackline::worker

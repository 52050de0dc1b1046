#include "worker/job_config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/slowdown.h"
#include "worker/local_job_config.h"

namespace slackline::worker {
namespace {

std::vector<uint32_t> OrElse(const google::protobuf::RepeatedField<uint32_t>& values, std::vector<uint32_t> otherwise) {
  if (values.empty()) return otherwise;
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
  switch (model.kind()) {
    case job::Model::MLP:
      spec.kind = ModelKind::kMlp;
      spec.hidden = OrElse(model.hidden(), {192});
      break;
    case job::Model::CNN:
      spec.kind = ModelKind::kCnn;
      spec.hidden = OrElse(model.hidden(), {128});
      spec.filters = OrElse(model.filters(), {32, 64});
      spec.batch_norm = model.batch_norm();
      break;
    case job::Model::RESNET18:
      spec.kind = ModelKind::kResnet18;
      break;
    case job::Model::RESNET34:
      spec.kind = ModelKind::kResnet34;
      break;
    case job::Model::RESNET50:
      spec.kind = ModelKind::kResnet50;
      break;
    case job::Model::EFFICIENTNET_B0:
      spec.kind = ModelKind::kEfficientnetB0;
      spec.dropout = 0.2;
      spec.stochastic_depth = 0.2;
      break;
    case job::Model::VIT_TINY:
      spec.kind = ModelKind::kVitTiny;
      break;
    case job::Model::VIT_SMALL:
      spec.kind = ModelKind::kVitSmall;
      break;
    case job::Model::VIT_BASE:
      spec.kind = ModelKind::kVitBase;
      break;
    case job::Model::TEXTURE_CNN_2:
      spec.kind = ModelKind::kTextureCnn2;
      spec.hidden = OrElse(model.hidden(), {4096, 4096});
      spec.dropout = 0.5;
      break;
  }
  if (model.dropout() >= 0) spec.dropout = model.dropout();
  if (model.stochastic_depth() >= 0) spec.stochastic_depth = model.stochastic_depth();
  spec.patch_size = model.patch_size();
  spec.init = MakeInitialisation(model);
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

Timeouts MakeTimeouts(const job::Job& job) {
  const job::Timeouts& timeouts = job.timeouts();
  return {.heartbeat = absl::Milliseconds(timeouts.heartbeat_ms()),
          .stall = absl::Milliseconds(timeouts.stall_ms()),
          .startup = absl::Milliseconds(timeouts.startup_ms()),
          .task_lease = absl::Seconds(job.local().lease_s())};
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
  return metering;
}

Augment MakeAugment(const job::Augment& augment) {
  using A = job::Augment;
  return {.flip_horizontal = augment.flip() == A::HORIZONTAL || augment.flip() == A::BOTH,
          .flip_vertical = augment.flip() == A::VERTICAL || augment.flip() == A::BOTH,
          .crop_padding = augment.crop_padding(),
          .crop_area_min = augment.crop_area_min(),
          .brightness = augment.brightness(),
          .contrast = augment.contrast(),
          .saturation = augment.saturation()};
}

}  // namespace

WorkerConfig MakeWorkerConfig(const job::Job& job, const std::string& name, uint32_t cores) {
  WorkerConfig config;
  config.model = MakeModelSpec(job.model());
  config.model.label_smoothing = job.training().label_smoothing();
  config.model.class_weights = MakeClassWeights(job.training());
  config.class_weights_balanced = job.training().class_weights_size() == 1 && config.model.class_weights.empty();
  config.seed = job.seed();
  config.data_path = job.data().path();
  config.train_images_max = job.data().train_images_max();
  config.prepared = job.data().format() == job::Data::PREPARED;
  if (job.data().evaluation_split() == job::Data::VALIDATION) config.evaluation_split = "validation";
  config.verify_data = job.data().verify();
  config.augment = MakeAugment(job.data().augment());
  config.normalisation = {.mean = job.data().mean(), .deviation = job.data().deviation()};
  config.prefetch_batches = job.data().prefetch_batches();
  config.evaluation_batch_size = job.training().evaluation_batch_size();
  config.trainer.seed = job.seed();
  config.trainer.batch_size = job.training().batch_size();
  config.trainer.accumulate = job.training().accumulate();
  config.trainer.local = MakeLocalConfig(job.local());
  config.trainer.chunk_bytes = job.wire().chunk_bytes();
  config.trainer.window = job.wire().window();
  config.trainer.slowdown = SlowdownOf(name, job.worker());
  config.push_codecs = MakePushCodecs(job.wire());
  if (job.wire().pull_encoding() == job::Wire::BF16) config.trainer.pull_encoding = codec::Encoding::kBf16;
  config.trainer.same_host = ToSameHost(job.wire().same_host());
  config.trainer.timeouts = MakeTimeouts(job);
  config.trainer.room_max = absl::Seconds(job.checkpoint().timeout_s());
  if (job.durability().mode() != job::Durability::NONE) {
    // The scheduler counts from when it has found the death, and is the one to say that it is over.
    config.trainer.server_return =
        absl::Seconds(job.durability().server_return_s()) + 2 * config.trainer.timeouts.worker_dead();
    config.scheduler_return = absl::Seconds(job.durability().scheduler_return_s());
  }
  config.devices.assign(job.worker().devices().begin(), job.worker().devices().end());
  config.stages = job.worker().stages();
  config.metering = MakeMetering(job.power());
  config.weights = job.model().weights();
  config.micro_batches = job.worker().micro_batches();
  if (!job.worker().trace().empty()) config.trace = TracePath(job.worker().trace(), name);
  const auto cpus = static_cast<uint32_t>(std::count(config.devices.begin(), config.devices.end(), "cpu"));
  const uint32_t sharers = job.cluster().workers() * std::max<uint32_t>(1, cpus);
  config.compute_threads = job.worker().threads() > 0 ? job.worker().threads() : std::max<uint32_t>(1, cores / sharers);
  return config;
}

absl::Status CheckData(const Dataset& train, const Dataset& test, uint32_t classes) {
  if (train.size() == 0 || test.size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", train.size(), " training and ", test.size(), " test images; both need at least 1"));
  }
  if (train.height() != test.height() || train.width() != test.width()) {
    return absl::InvalidArgumentError(absl::StrCat("training images are ", train.width(), "x", train.height(),
                                                   ", test images ", test.width(), "x", test.height()));
  }
  const uint32_t label_max = std::max(train.label_max(), test.label_max());
  if (label_max >= classes) {
    return absl::InvalidArgumentError(absl::StrCat("the data has label ", label_max, "; model.classes is ", classes));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> FitModel(const WorkerConfig& config, const Dataset& train) {
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

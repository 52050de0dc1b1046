// Conversion of the job file's model and training sections to what the model's room builds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "common/job/job_file.h"
#include "images/formats/data_requests.h"
#include "tests/images/test_data.h"
#include "worker/settings/container.h"
#include "worker/settings/job_config.h"

namespace slackline::worker::model_config_test {
namespace {

WorkerConfig ConfigOf(const std::string& yaml) {
  const absl::StatusOr<job::Job> job = ParseJob(yaml, "j.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return MakeWorkerConfig(Resolve(*job), {"worker-1"}, /*cores=*/1);
}

// Images of 4 x 4 with these labels.
images::Dataset DataOf(const TemporaryFolder& folder, const Bytes& labels) {
  const auto count = static_cast<uint32_t>(labels.size());
  WriteFile(folder / "train-images-idx3-ubyte", Idx({count, 4, 4}, Bytes(size_t{count} * 16, 7)));
  WriteFile(folder / "train-labels-idx1-ubyte", Idx({count}, labels));
  return *images::Dataset::ReadIdx(folder.path(), "train");
}

TEST(ModelConfig, AGroupHasItsDevicesBatchCoresAndShareOfThreads) {
  const job::Job job = Resolve(*ParseJob(
      "worker: {cores: auto, groups: [{devices: [cpu, cpu], batch: 48}, {devices: cpu, cores: 3}, auto]}", "j.yaml"));
  const WorkerConfig first = MakeWorkerConfig(job, {.name = "worker-1", .group = 0}, /*cores=*/16);
  EXPECT_THAT(first.devices, ::testing::ElementsAre("cpu", "cpu"));
  EXPECT_EQ(first.trainer.batch_size, 48u);
  EXPECT_EQ(first.compute_threads, 4u) << "four devices, one of them auto, share 16 cores";
  const WorkerConfig second = MakeWorkerConfig(job, {.name = "worker-2", .group = 1}, /*cores=*/16);
  EXPECT_THAT(second.devices, ::testing::ElementsAre("cpu"));
  EXPECT_EQ(second.trainer.batch_size, 64u);
  const std::vector<CoreShare> shares = CoreShares(job, {.workers = 4, .gpus = 2});
  ASSERT_EQ(shares.size(), 4u);
  EXPECT_EQ(shares[0].wish.kind, CoreWish::Kind::kAuto);
  EXPECT_EQ(shares[0].devices, 2u);
  EXPECT_EQ(shares[1].key, "worker.groups[1].cores");
  EXPECT_EQ(shares[1].wish.count, 3u);
  EXPECT_TRUE(shares[2].gpus);
  EXPECT_EQ(shares[2].devices, 2u) << "auto is all GPUs of the machine";
  EXPECT_EQ(shares[3].devices, 2u) << "the first group again";
  EXPECT_FALSE(CoreShares(job, {.workers = 3, .gpus = 0})[2].gpus);
  const auto near = CoreShares(job, {.workers = 3, .gpus = 2, .gpu_nodes = {1, 0}});
  EXPECT_THAT(near[2].near, ::testing::ElementsAre(1, 0));
  EXPECT_TRUE(near[0].near.empty()) << "of CPUs";
  EXPECT_TRUE(CoreShares(job, {.workers = 3, .gpus = 2, .gpu_nodes = {1, std::nullopt}})[2].near.empty());
}

TEST(ModelConfig, ProcessesOfANodeGroupShareTheCores) {
  const job::Job job = Resolve(
      *ParseJob("model: {kind: external}\ncluster: {workers: 1}\nworker: {node_group: true, per_node: 4}", "j.yaml"));
  EXPECT_EQ(MakeWorkerConfig(job, {.name = "worker-1"}, /*cores=*/16).compute_threads, 4u);
}

TEST(ModelConfig, AContainerHasTheGpusAndProcessorsOfItsGroup) {
  const job::Job job = Resolve(*ParseJob(
      "worker: {cores: 2, groups: [[cuda:1, cuda:0], [cuda:3, cuda:2], [cpu, cpu], {devices: cpu, cores: 5}]}",
      "j.yaml"));
  const auto config = [&](uint32_t group, uint32_t cpus) {
    WorkerConfig made = MakeWorkerConfig(InContainer(job, group), {.name = "w", .group = group}, /*cores=*/64);
    ShareProcessors(cpus, made);
    return made;
  };
  EXPECT_THAT(config(1, 4).devices, ::testing::ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(config(2, 4).devices, ::testing::ElementsAre("cpu", "cpu"));
  EXPECT_EQ(config(2, 5).compute_threads, 2u);
  EXPECT_EQ(config(2, 1).compute_threads, 1u);
  EXPECT_EQ(InContainer(job, 1).worker().groups(0).devices(0), "cuda:1") << "what others have, it does not see";
  EXPECT_EQ(CoreShares(job, {.workers = 1, .first = 3})[0].wish.count, 5u);
  EXPECT_EQ(CoreShares(job, {.workers = 1, .first = 2})[0].key, "worker.cores");
  // A job that says how many threads is obeyed, and one without groups has all that is there.
  WorkerConfig told = ConfigOf("worker: {threads: 3, devices: [cpu, cpu]}");
  ShareProcessors(16, told);
  EXPECT_EQ(told.compute_threads, 3u);
  const job::Job any = Resolve(*ParseJob("worker: {groups: [auto, cpu]}", "j.yaml"));
  EXPECT_EQ(InContainer(any, 0).worker().groups(0).devices(0), "auto");
  const job::Job plain = Resolve(*ParseJob("worker: {devices: [cuda:1]}", "j.yaml"));
  EXPECT_EQ(InContainer(plain, 0).worker().devices(0), "cuda:1");
}

TEST(ModelConfig, WhatIsNotSetIsTheReferences) {
  const ModelSpec efficientnet = ConfigOf("model: {kind: efficientnet_b0}").model;
  EXPECT_EQ(efficientnet.dropout, 0.2);
  EXPECT_EQ(efficientnet.stochastic_depth, 0.2);
  const ModelSpec texture = ConfigOf("model: {kind: texture_cnn_2}").model;
  EXPECT_THAT(texture.hidden, ::testing::ElementsAre(4096, 4096));
  EXPECT_EQ(texture.dropout, 0.5);
  const ModelSpec vit = ConfigOf("model: {kind: vit_small}").model;
  EXPECT_EQ(vit.dropout, 0);
  EXPECT_EQ(vit.stochastic_depth, 0);
  EXPECT_EQ(vit.patch_size, 16u);
  EXPECT_EQ(vit.init.kind, Initialisation::Kind::kReference);
}

TEST(ModelConfig, WhatIsSetCounts) {
  const ModelSpec vit = ConfigOf(
                            "model: {kind: vit_tiny, patch_size: 4, dropout: 0.1, stochastic_depth: 0.3, "
                            "init: truncated_normal, init_std: 0.05}\ntraining: {label_smoothing: 0.2}")
                            .model;
  EXPECT_EQ(vit.kind, ModelKind::kVitTiny);
  EXPECT_EQ(vit.patch_size, 4u);
  EXPECT_EQ(vit.dropout, 0.1);
  EXPECT_EQ(vit.stochastic_depth, 0.3);
  EXPECT_EQ(vit.init.kind, Initialisation::Kind::kTruncatedNormal);
  EXPECT_EQ(vit.init.deviation, 0.05);
  EXPECT_EQ(vit.label_smoothing, 0.2);
  EXPECT_EQ(ConfigOf("model: {kind: efficientnet_b0, dropout: 0}").model.dropout, 0);
}

TEST(ModelConfig, EveryKindOfTheJobFileIsBuilt) {
  const auto* kinds = job::Model::Kind_descriptor();

  for (int i = 0; i < kinds->value_count(); ++i) {
    job::Job job;
    job.mutable_model()->set_kind(static_cast<job::Model::Kind>(kinds->value(i)->number()));
    const ModelSpec spec = MakeWorkerConfig(Resolve(job), {"worker-1"}, 1).model;
    EXPECT_EQ(KindName(spec.kind), absl::AsciiStrToLower(kinds->value(i)->name()));
  }
}

TEST(ModelConfig, ImagesSayTheirSize) {
  const TemporaryFolder folder;
  const absl::StatusOr<ModelSpec> spec = FitModel(ConfigOf(""), DataOf(folder, {0, 1}));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->height, 4u);
  EXPECT_EQ(spec->width, 4u);
  EXPECT_THAT(spec->class_weights, ::testing::IsEmpty());
}

TEST(ModelConfig, BalancedWeightsMakeClassesCountAlike) {
  const TemporaryFolder folder;
  const images::Dataset data = DataOf(folder, {0, 0, 0, 0, 1, 2, 1, 0});
  const WorkerConfig config = ConfigOf("model: {classes: 3}\ntraining: {class_weights: balanced}");
  const absl::StatusOr<ModelSpec> spec = FitModel(config, data);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->class_weights,
              ::testing::ElementsAre(::testing::FloatEq(8.0f / 15), ::testing::FloatEq(8.0f / 6), 8.0f / 3));
}

TEST(ModelConfig, AClassWithoutImagesHasNoBalancedWeight) {
  const TemporaryFolder folder;
  const WorkerConfig config = ConfigOf("model: {classes: 3}\ntraining: {class_weights: balanced}");
  const absl::Status status = FitModel(config, DataOf(folder, {0, 2, 2})).status();
  EXPECT_EQ(status.message(),
            "training.class_weights: balanced needs training images of every class; class 1 of 3 has none");
}

TEST(ModelConfig, WeightsInTheJobFileAreTaken) {
  const TemporaryFolder folder;
  const WorkerConfig config = ConfigOf("model: {classes: 2}\ntraining: {class_weights: [1, 2.5]}");
  EXPECT_THAT(FitModel(config, DataOf(folder, {0, 0}))->class_weights, ::testing::ElementsAre(1, 2.5f));
}

TEST(DataConfig, WhatIsSaidOfImagesIsTaken) {
  const WorkerConfig config = ConfigOf(
      "timeouts: {startup_ms: 5000}\ndata: {format: prepared, path: \"http://localhost/p\", http_timeout_s: 3, "
      "sampling: "
      "balanced, cache: {folder: /c, gigabytes_max: 0.5}, augment: {rand_augment: 2, rand_augment_magnitude: 7, "
      "mixup_alpha: 0.2, cutmix_alpha: 1, grey: 0.1, blur: 0.3}}");
  EXPECT_EQ(config.data.settings.format(), job::Data::PREPARED);
  EXPECT_TRUE(config.trainer.balanced);
  const images::PreparedStoreOptions store = images::StoreOptionsOf(config.data, nullptr);
  EXPECT_EQ(store.path, "http://localhost/p");
  EXPECT_EQ(store.cache_folder, "/c");
  EXPECT_EQ(store.cache_bytes_max, 500'000'000u);
  EXPECT_EQ(store.fetch.silence_max, absl::Seconds(3));
  EXPECT_EQ(store.fetch.give_up, absl::Seconds(5));
  EXPECT_EQ(config.augment.rand_augment, 2u);
  EXPECT_EQ(config.augment.rand_augment_magnitude, 7);
  EXPECT_EQ(config.augment.mixup_alpha, 0.2);
  EXPECT_EQ(config.augment.cutmix_alpha, 1);
  EXPECT_EQ(config.augment.grey, 0.1);
  EXPECT_EQ(config.augment.blur, 0.3);
  const WorkerConfig pictures = ConfigOf(
      "data: {format: webdataset, evaluation_split: validation, decode: {size: 32x16, grey: true, fit: crop}}");
  EXPECT_EQ(pictures.data.settings.format(), job::Data::WEBDATASET);
  EXPECT_EQ(pictures.data.evaluation_split, "validation");
  const images::pictures::FormWish wish = images::FormWishOf(pictures.data.settings.decode());
  EXPECT_EQ(wish.size, "32x16");
  EXPECT_TRUE(wish.grey && wish.fit == images::pictures::Fit::kCrop && !pictures.trainer.balanced);
  const WorkerConfig objects = ConfigOf(
      "model: {kind: torchscript, torchscript: m.pt}\ntraining: {loss: model, batch_size: 8}\n"
      "data: {format: coco, path: /p, evaluation_split: validation, coco: {train_images: /t, masks: false}}");
  EXPECT_EQ(objects.data.settings.format(), job::Data::COCO);
  images::DataRequest request = objects.data;
  const images::coco::CocoOptions validation = images::CocoOptionsOf(request);
  EXPECT_EQ(validation.train.images, "/t");
  EXPECT_EQ(validation.evaluation.annotations, "/p/annotations/instances_val2017.json");
  EXPECT_FALSE(validation.masks);
  request.evaluation_split = "test";
  EXPECT_EQ(images::CocoOptionsOf(request).evaluation.annotations, "");
  EXPECT_EQ(objects.evaluation_batch_size, 8u);
  EXPECT_EQ(pictures.evaluation_batch_size, 500u);
}

}  // namespace
}  // namespace slackline::worker::model_config_test

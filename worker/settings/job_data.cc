#include "worker/settings/job_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "images/base/class_names.h"
#include "images/coco/coco_data.h"
#include "images/pictures/picture_data.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_store.h"

namespace slackline::worker {
namespace {

absl::StatusOr<JobData> ReadIdxData(const WorkerConfig& config) {
  JobData data;
  absl::StatusOr<images::Dataset> train = images::Dataset::ReadIdx(config.data_path, "train", config.train_images_max);
  if (!train.ok()) return train.status();
  absl::StatusOr<images::Dataset> test = images::Dataset::ReadIdx(config.data_path, "t10k");
  if (!test.ok()) return test.status();
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.fingerprint = data.train.Fingerprint();
  if (absl::Status fits = CheckData(data.train, data.test, config.model.classes); !fits.ok()) return fits;
  absl::StatusOr<std::vector<std::string>> names = images::ReadClassNames(config.data_path, config.model.classes);
  if (!names.ok()) return names.status();
  data.class_names = *std::move(names);
  return data;
}

// The files that the job needs, in the order that all its workers have alike.
std::vector<images::PreparedFile> FilesOf(const WorkerConfig& config, const images::PreparedIndex& index) {
  std::vector<images::PreparedFile> files;
  const auto add = [&](const std::string& name, uint64_t images_max) {
    const images::PreparedSplit* split = index.Find(name);
    if (split == nullptr) return;
    for (const images::PreparedShard& shard : split->ShardsOf(images_max)) {
      files.push_back(shard.images);
      files.push_back(shard.labels);
    }
  };
  add("train", config.train_images_max);
  add(config.evaluation_split, 0);
  return files;
}

absl::StatusOr<JobData> OpenPreparedData(const WorkerConfig& config, images::ImagePeers* peers) {
  images::StoreOptions options = config.store;
  options.peers = peers;
  absl::StatusOr<images::PreparedStore> store = images::PreparedStore::Open(options);
  if (!store.ok()) return store.status();
  absl::StatusOr<images::PreparedIndex> index = store->ReadIndex();
  if (!index.ok()) return index.status();
  if (index->classes.size() != config.model.classes) {
    return absl::InvalidArgumentError(absl::StrCat(config.data_path, " has ", index->classes.size(),
                                                   " classes; model.classes is ", config.model.classes));
  }
  absl::Status augmentable = images::CheckAugmentable(index->type, config.augment.rand_augment, config.data_path);
  if (!augmentable.ok()) return augmentable;
  if (absl::Status together = store->GetTogether(FilesOf(config, *index)); !together.ok()) return together;
  JobData data;
  const images::Locate locate = [&store](const images::PreparedFile& file) { return store->Get(file); };
  absl::StatusOr<images::Dataset> train = images::Dataset::OpenPrepared(
      config.data_path, locate, *index, "train", {.images_max = config.train_images_max, .verify = config.verify_data});
  if (!train.ok()) return train.status();
  absl::StatusOr<images::Dataset> test = images::Dataset::OpenPrepared(
      config.data_path, locate, *index, config.evaluation_split, {.images_max = 0, .verify = config.verify_data});
  if (!test.ok()) {
    if (index->Find(config.evaluation_split) != nullptr && index->Find(config.evaluation_split)->rows() > 0) {
      return test.status();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(test.status().message(), "; data.evaluation_split names another: test or validation"));
  }
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.fingerprint = FingerprintOf(*index, config.train_images_max);
  data.class_names = std::move(index->classes);
  return data;
}

absl::StatusOr<JobData> OpenPictureData(const WorkerConfig& config) {
  const bool tars = config.data_format == WorkerConfig::DataFormat::kWebdataset;
  absl::StatusOr<images::pictures::PictureData> data = images::pictures::OpenPictures(
      config.data_path,
      {.kind = tars ? images::pictures::SourceKind::kWebdataset : images::pictures::SourceKind::kFolder,
       .form = {.size = config.decode.size,
                .grey = config.decode.grey,
                .fit = config.decode.crop ? images::pictures::Fit::kCrop : images::pictures::Fit::kStretch,
                .size_key = "data.decode.size"},
       .evaluation_split = config.evaluation_split,
       .train_images_max = config.train_images_max,
       .classes = config.model.classes});
  if (!data.ok()) return data.status();
  if (data->class_names.size() != config.model.classes) {
    return absl::InvalidArgumentError(absl::StrCat(config.data_path, " has ", data->class_names.size(),
                                                   " classes; model.classes is ", config.model.classes));
  }
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .class_names = std::move(data->class_names),
                 .fingerprint = 0};
}

absl::StatusOr<JobData> OpenCocoData(const WorkerConfig& config) {
  const bool test = config.evaluation_split == "test";
  const WorkerConfig::CocoFiles& evaluation = test ? config.coco.test : config.coco.validation;
  if (evaluation.annotations.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no split ", config.evaluation_split, ": data.coco.",
                                                   config.evaluation_split, "_annotations names no file"));
  }
  absl::StatusOr<images::coco::CocoData> data =
      images::coco::OpenCoco({.train = {config.coco.train.images, config.coco.train.annotations},
                              .evaluation = {evaluation.images, evaluation.annotations},
                              .masks = config.coco.masks,
                              .classes = config.model.classes,
                              .train_images_max = config.train_images_max});
  if (!data.ok()) return data.status();
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .class_names = std::move(data->class_names),
                 .fingerprint = data->fingerprint};
}

}  // namespace

absl::StatusOr<JobData> ReadJobData(const WorkerConfig& config, images::ImagePeers* peers) {
  switch (config.data_format) {
    case WorkerConfig::DataFormat::kPrepared:
      return OpenPreparedData(config, peers);
    case WorkerConfig::DataFormat::kFolder:
    case WorkerConfig::DataFormat::kWebdataset:
      return OpenPictureData(config);
    case WorkerConfig::DataFormat::kCoco:
      return OpenCocoData(config);
    case WorkerConfig::DataFormat::kIdx:
      break;
  }
  return ReadIdxData(config);
}

}  // namespace slackline::worker

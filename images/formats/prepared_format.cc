#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "images/formats/formats.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_store.h"

namespace slackline::images {
namespace {

// The files that the job needs, in the order that all its workers have alike.
std::vector<PreparedFile> FilesOf(const DataRequest& request, const PreparedIndex& index) {
  std::vector<PreparedFile> files;
  const auto add = [&](const std::string& name, uint64_t images_max) {
    const PreparedSplit* split = index.Find(name);
    if (split == nullptr) return;
    for (const PreparedShard& shard : split->ShardsOf(images_max)) {
      files.push_back(shard.images);
      files.push_back(shard.labels);
    }
  };
  add("train", request.settings.train_images_max());
  add(request.evaluation_split, 0);
  return files;
}

absl::StatusOr<JobData> OpenPrepared(const DataRequest& request, ImagePeers* peers) {
  const std::string& path = request.settings.path();
  const std::string& evaluation_split = request.evaluation_split;
  const uint64_t images_max = request.settings.train_images_max();
  const bool verify = request.settings.verify();
  absl::StatusOr<PreparedStore> store = PreparedStore::Open(StoreOptionsOf(request, peers));
  if (!store.ok()) return store.status();
  absl::StatusOr<PreparedIndex> index = store->ReadIndex();
  if (!index.ok()) return index.status();
  if (index->classes.size() != request.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", index->classes.size(), " classes; model.classes is ", request.classes));
  }
  absl::Status augmentable = CheckAugmentable(index->type, request.settings.augment().rand_augment(), path);
  if (!augmentable.ok()) return augmentable;
  if (absl::Status together = store->GetTogether(FilesOf(request, *index)); !together.ok()) return together;
  JobData data;
  const Locate locate = [&store](const PreparedFile& file) { return store->Get(file); };
  absl::StatusOr<Dataset> train =
      Dataset::OpenPrepared(path, locate, *index, "train", {.images_max = images_max, .verify = verify});
  if (!train.ok()) return train.status();
  absl::StatusOr<Dataset> test =
      Dataset::OpenPrepared(path, locate, *index, evaluation_split, {.images_max = 0, .verify = verify});
  if (!test.ok()) {
    if (index->Find(evaluation_split) != nullptr && index->Find(evaluation_split)->rows() > 0) return test.status();
    return absl::InvalidArgumentError(
        absl::StrCat(test.status().message(), "; data.evaluation_split names another: test or validation"));
  }
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.fingerprint = FingerprintOf(*index, images_max);
  data.class_names = std::move(index->classes);
  return data;
}

absl::Status CheckIndex(const job::Data& data, uint32_t classes) {
  const absl::StatusOr<PreparedIndex> index = ReadPreparedIndex(data.path());
  if (!index.ok()) return absl::Status(index.status().code(), absl::StrCat("data.path: ", index.status().message()));
  if (index->classes.size() == classes) {
    return CheckAugmentable(index->type, data.augment().rand_augment(), data.path());
  }
  return absl::InvalidArgumentError(absl::StrCat("model.classes: found ", classes, "; allowed is ",
                                                 index->classes.size(), ", as many as ", data.path(), " has"));
}

std::optional<TrainingImages> LookIntoIndex(const job::Data& data) {
  const absl::StatusOr<PreparedIndex> index = ReadPreparedIndex(data.path());
  const PreparedSplit* const train = index.ok() ? index->Find("train") : nullptr;
  if (train == nullptr) return std::nullopt;
  const uint64_t most = data.train_images_max();
  return TrainingImages{.count = most == 0 ? train->rows() : std::min(most, train->rows()),
                        .fingerprint = FingerprintOf(*index, most)};
}

}  // namespace

PreparedStoreOptions StoreOptionsOf(const DataRequest& request, ImagePeers* peers) {
  const job::Data& data = request.settings;
  return {.path = data.path(),
          .cache_folder = data.cache().folder(),
          .cache_bytes_max = static_cast<uint64_t>(data.cache().gigabytes_max() * 1e9),
          .http = {.silence_max = absl::Seconds(data.http_timeout_s()), .give_up = request.give_up},
          .peers = peers};
}

const DataFormat kPreparedFormat = {
    .format = job::Data::PREPARED, .open = OpenPrepared, .check = CheckIndex, .look = LookIntoIndex};

}  // namespace slackline::images

#include "images/formats/data_format.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/http/http_address.h"
#include "images/base/class_names.h"
#include "images/formats/data_requests.h"
#include "images/pictures/picture_data.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/spread_shards.h"

namespace slackline::images {
namespace {

absl::StatusOr<JobData> OpenCoco(const DataRequest& request, ImagePeers* /*peers*/) {
  const coco::CocoOptions options = CocoOptionsOf(request);
  if (options.evaluation.annotations.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no split ", request.evaluation_split, ": data.coco.",
                                                   request.evaluation_split, "_annotations names no file"));
  }
  absl::StatusOr<coco::CocoData> data = coco::OpenCoco(options);
  if (!data.ok()) return data.status();
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .last_test = std::nullopt,
                 .class_names = std::move(data->class_names),
                 .fingerprint = data->fingerprint};
}

absl::Status CheckCocoFiles(const job::Data& data, uint32_t /*classes*/) {
  const std::filesystem::path folder = data.path();
  const bool test = data.evaluation_split() == job::Data::TEST;
  const std::string split = test ? "test" : "validation";
  const job::Coco& coco = data.coco();
  const std::pair<std::string, std::string> files[] = {
      {"data.coco.train_annotations", coco.train_annotations()},
      {absl::StrCat("data.coco.", split, "_annotations"),
       test ? coco.test_annotations() : coco.validation_annotations()}};
  const std::pair<std::string, std::string> folders[] = {
      {"data.coco.train_images", coco.train_images()},
      {absl::StrCat("data.coco.", split, "_images"), test ? coco.test_images() : coco.validation_images()}};
  std::error_code error;
  for (const auto& [key, path] : files) {
    if (std::filesystem::is_regular_file(folder / path, error)) continue;
    return absl::NotFoundError(
        absl::StrCat(key, ": found no file ", (folder / path).string(), "; allowed is one in COCO's format"));
  }
  for (const auto& [key, path] : folders) {
    if (std::filesystem::is_directory(folder / path, error)) continue;
    return absl::NotFoundError(
        absl::StrCat(key, ": found no folder ", (folder / path).string(), "; allowed is one of pictures"));
  }
  return absl::OkStatus();
}

// Refuses images of two sizes, labels beyond the classes, and splits without images.
absl::Status CheckFit(const Dataset& train, const Dataset& test, uint32_t classes) {
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

absl::StatusOr<JobData> OpenIdx(const DataRequest& request, ImagePeers* /*peers*/) {
  const std::string& path = request.settings.path();
  JobData data;
  absl::StatusOr<Dataset> train = Dataset::ReadIdx(path, "train", request.settings.train_images_max());
  if (!train.ok()) return train.status();
  absl::StatusOr<Dataset> test = Dataset::ReadIdx(path, "t10k");
  if (!test.ok()) return test.status();
  data.train = *std::move(train);
  data.test = *std::move(test);
  data.fingerprint = data.train.Fingerprint();
  if (absl::Status fits = CheckFit(data.train, data.test, request.classes); !fits.ok()) return fits;
  absl::StatusOr<std::vector<std::string>> names = ReadClassNames(path, request.classes);
  if (!names.ok()) return names.status();
  data.class_names = *std::move(names);
  return data;
}

absl::Status CheckIdxFiles(const job::Data& data, uint32_t /*classes*/) {
  const std::filesystem::path folder = data.path();
  std::error_code error;
  std::vector<std::string> missing;
  for (const std::string name :
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const bool there = std::filesystem::is_regular_file(folder / name, error) ||
                       std::filesystem::is_regular_file(folder / (name + ".gz"), error);
    if (!there) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("data.path: found no ", absl::StrJoin(missing, ", "), " in ", folder.string(),
                                          "; allowed is a folder with these files, plain or with .gz"));
}

template <pictures::SourceKind kKind>
absl::StatusOr<JobData> OpenPictures(const DataRequest& request, ImagePeers* /*peers*/) {
  const std::string& path = request.settings.path();
  absl::StatusOr<pictures::PictureData> data =
      pictures::OpenPictures(path, {.kind = kKind,
                                    .form = FormWishOf(request.settings.decode()),
                                    .evaluation_split = request.evaluation_split,
                                    .last_split = request.last_split,
                                    .train_images_max = request.settings.train_images_max(),
                                    .classes = request.classes});
  if (!data.ok()) return data.status();
  if (data->class_names.size() != request.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", data->class_names.size(), " classes; model.classes is ", request.classes));
  }
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .last_test = std::move(data->last_test),
                 .class_names = std::move(data->class_names),
                 .fingerprint = 0};
}

// The files that the job needs, in the order that all its workers have alike. The first `spread` files are spread over
// the nodes: the pixels of the training images.
struct NeededFiles {
  std::vector<PreparedFile> files;
  size_t spread = 0;
};

NeededFiles FilesOf(const DataRequest& request, const PreparedIndex& index, bool spread) {
  NeededFiles needed;
  std::vector<PreparedFile> others;
  const auto add = [&](const std::string& name, uint64_t images_max, bool spreads) {
    const PreparedSplit* split = index.Find(name);
    if (split == nullptr) return;
    for (const PreparedShard& shard : split->ShardsOf(images_max)) {
      (spreads ? needed.files : others).push_back(shard.images);
      others.push_back(shard.labels);
    }
  };
  add("train", request.settings.train_images_max(), spread);
  add(request.evaluation_split, 0, false);
  if (request.last_split != request.evaluation_split) add(request.last_split, 0, false);
  needed.spread = needed.files.size();
  needed.files.insert(needed.files.end(), others.begin(), others.end());
  return needed;
}

// Opens the training images, of which this node keeps a part.
absl::Status OpenSpread(const DataRequest& request, ImagePeers* peers, const Locate& locate, const PreparedIndex& index,
                        JobData& data) {
  const std::string& path = request.settings.path();
  const uint64_t images_max = request.settings.train_images_max();
  const absl::Span<const PreparedShard> shards = index.Find("train")->ShardsOf(images_max);
  std::vector<HeldFile> labels;
  for (const PreparedShard& shard : shards) {
    absl::StatusOr<HeldFile> held = locate(shard.labels, nullptr);
    if (!held.ok()) return held.status();
    labels.push_back(*std::move(held));
  }
  absl::StatusOr<std::shared_ptr<SpreadShards>> spread = SpreadShards::Begin({.store = StoreOptionsOf(request, peers),
                                                                              .shards = {shards.begin(), shards.end()},
                                                                              .index = index,
                                                                              .held = std::move(labels),
                                                                              .verify = request.settings.verify()});
  if (!spread.ok()) return spread.status();
  absl::StatusOr<Dataset> train = Dataset::OpenStreamed(path, locate, *spread, index, "train", images_max);
  if (!train.ok()) return train.status();
  data.train = *std::move(train);
  data.spread = *std::move(spread);
  return absl::OkStatus();
}

// Opens the training images, all of which this node keeps; on demand, those of the files that it needs.
absl::Status OpenWhole(const DataRequest& request, const Locate& locate, const PreparedIndex& index, bool on_demand,
                       JobData& data) {
  const job::Data& settings = request.settings;
  absl::StatusOr<Dataset> train = Dataset::OpenPrepared(
      settings.path(), locate, index, "train",
      {.images_max = settings.train_images_max(), .verify = settings.verify(), .on_demand = on_demand});
  if (!train.ok()) return train.status();
  data.train = *std::move(train);
  return absl::OkStatus();
}

absl::StatusOr<JobData> OpenPrepared(const DataRequest& request, ImagePeers* peers) {
  const std::string& path = request.settings.path();
  const std::string& evaluation_split = request.evaluation_split;
  PreparedStoreOptions options = StoreOptionsOf(request, peers);
  // A process that only looks at the images has no peers: it reads them from their folder, without filling the cache.
  if (request.settings.cache().spread() && peers == nullptr && !IsFileServer(path)) options.cache_folder.clear();
  absl::StatusOr<PreparedStore> opened = PreparedStore::Open(options);
  if (!opened.ok()) return opened.status();
  // Data sets on demand use the store as long as they live.
  const auto store = std::make_shared<PreparedStore>(*std::move(opened));
  absl::StatusOr<PreparedIndex> index = store->ReadIndex();
  if (!index.ok()) return index.status();
  if (index->classes.size() != request.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", index->classes.size(), " classes; model.classes is ", request.classes));
  }
  absl::Status augmentable = CheckAugmentable(index->type, request.settings.augment().rand_augment(), path);
  if (!augmentable.ok()) return augmentable;
  const bool spread = request.settings.cache().spread() && peers != nullptr && index->Find("train") != nullptr;
  const NeededFiles needed = FilesOf(request, *index, spread);
  if (absl::Status together = store->GetTogether(needed.files, needed.spread); !together.ok()) return together;
  JobData data;
  const Locate locate = [store](const PreparedFile& file, const FetchWatch& watch) { return store->Get(file, watch); };
  const bool on_demand = request.on_demand && request.settings.sampling() == job::Data::BY_FILE &&
                         !request.settings.cache().folder().empty();
  const absl::Status train =
      spread ? OpenSpread(request, peers, locate, *index, data) : OpenWhole(request, locate, *index, on_demand, data);
  if (!train.ok()) return train;
  const bool verify = request.settings.verify();
  absl::StatusOr<Dataset> test = Dataset::OpenPrepared(path, locate, *index, evaluation_split,
                                                       {.images_max = 0, .verify = verify, .on_demand = on_demand});
  if (!test.ok()) {
    if (index->Find(evaluation_split) != nullptr && index->Find(evaluation_split)->rows() > 0) return test.status();
    return absl::InvalidArgumentError(
        absl::StrCat(test.status().message(), "; data.evaluation_split names another: test or validation"));
  }
  if (!request.last_split.empty()) {
    absl::StatusOr<Dataset> last = Dataset::OpenPrepared(path, locate, *index, request.last_split,
                                                         {.images_max = 0, .verify = verify, .on_demand = on_demand});
    if (!last.ok()) return last.status();
    data.last_test = *std::move(last);
  }
  data.test = *std::move(test);
  data.fingerprint = FingerprintOf(*index, request.settings.train_images_max());
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

const DataFormat kCocoFormat = {.format = job::Data::COCO, .open = OpenCoco, .check = CheckCocoFiles};
const DataFormat kIdxFormat = {.format = job::Data::IDX, .open = OpenIdx, .check = CheckIdxFiles};
const DataFormat kFolderFormat = {.format = job::Data::FOLDER, .open = OpenPictures<pictures::SourceKind::kFolder>};
const DataFormat kWebdatasetFormat = {.format = job::Data::WEBDATASET,
                                      .open = OpenPictures<pictures::SourceKind::kWebdataset>};
const DataFormat kPreparedFormat = {
    .format = job::Data::PREPARED, .open = OpenPrepared, .check = CheckIndex, .look = LookIntoIndex};

}  // namespace

coco::CocoOptions CocoOptionsOf(const DataRequest& request) {
  const auto below = [&](const std::string& path) {
    const bool there = path.empty() || path.front() == '/';
    return there ? path : absl::StrCat(request.settings.path(), "/", path);
  };
  const job::Coco& coco = request.settings.coco();
  const bool test = request.evaluation_split == "test";
  return {.train = {below(coco.train_images()), below(coco.train_annotations())},
          .evaluation = {below(test ? coco.test_images() : coco.validation_images()),
                         below(test ? coco.test_annotations() : coco.validation_annotations())},
          .masks = coco.masks(),
          .classes = request.classes,
          .train_images_max = request.settings.train_images_max()};
}

pictures::FormWish FormWishOf(const job::Decode& decode) {
  return {.size = decode.size(),
          .grey = decode.grey(),
          .fit = decode.fit() == job::Decode::CROP ? pictures::Fit::kCrop : pictures::Fit::kStretch,
          .size_key = "data.decode.size"};
}

PreparedStoreOptions StoreOptionsOf(const DataRequest& request, ImagePeers* peers) {
  const job::Data& data = request.settings;
  return {.path = data.path(),
          .cache_folder = data.cache().folder(),
          .cache_bytes_max = static_cast<uint64_t>(data.cache().gigabytes_max() * 1e9),
          .fetch = {.silence_max = absl::Seconds(data.http_timeout_s()),
                    .give_up = request.give_up,
                    .ca_file = data.ca_file()},
          .peers = peers};
}

const DataFormat& FormatOf(const job::Data& data) {
  static constexpr const DataFormat* kFormats[] = {&kIdxFormat, &kPreparedFormat, &kFolderFormat, &kWebdatasetFormat,
                                                   &kCocoFormat};
  const auto found = absl::c_find_if(kFormats, [&](const DataFormat* one) { return one->format == data.format(); });
  SLACKLINE_CHECK(found != std::end(kFormats));
  return **found;
}

absl::StatusOr<JobData> OpenJobData(const DataRequest& request, ImagePeers* peers) {
  return FormatOf(request.settings).open(request, peers);
}

}  // namespace slackline::images

#include "images/dataset/dataset.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/storage/checksum.h"
#include "images/augment/mix_batch.h"
#include "images/base/halves.h"
#include "images/base/idx_file.h"
#include "images/base/random_order.h"
#include "images/prepared/mapped_shards.h"
#include "images/prepared/prepared_check.h"

namespace slackline::images {
namespace {

constexpr float kPixelMax = 255;

// Returns the split, which has images.
absl::StatusOr<const PreparedSplit*> FindSplit(const std::string& name, const PreparedIndex& index,
                                               const std::string& split) {
  const PreparedSplit* found = index.Find(split);
  if (found != nullptr && found->rows() > 0) return found;
  return absl::InvalidArgumentError(absl::StrCat(name, " has no images in its split ", split,
                                                 "; `slackline prepare --split` says how many each has"));
}

uint64_t KeptImages(const PreparedSplit& split, uint64_t images_max) {
  return images_max == 0 ? split.rows() : std::min(images_max, split.rows());
}

// Returns the shards of a split, whose files are got when they are needed.
std::shared_ptr<ShardSource> OnDemand(const std::string& name, const Locate& locate, const PreparedIndex& index,
                                      const PreparedSplit& split, const Dataset::PreparedOptions& options) {
  const absl::Span<const PreparedShard> wanted = split.ShardsOf(options.images_max);
  const std::vector<PreparedShard> shards(wanted.begin(), wanted.end());
  std::vector<std::string> names;
  for (const PreparedShard& shard : shards) names.push_back(shard.images.name);
  PreparedIndex form;  // without the lists of files
  form.shape = index.shape;
  form.type = index.type;
  const bool verify = options.verify;
  const MappedShards::Map map = [=](size_t i, const FetchWatch& watch) -> absl::StatusOr<MappedShard> {
    absl::StatusOr<MappedShard> mapped = OpenPixels(locate, shards[i], form, watch);
    if (!mapped.ok()) return mapped;
    absl::Status status = verify ? CheckBytes(*mapped, shards[i]) : absl::OkStatus();
    if (status.ok() && verify) status = CheckPixels(*mapped, shards[i], form);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    return mapped;
  };
  return std::make_shared<MappedShards>(std::move(names), map);
}

}  // namespace

absl::StatusOr<Dataset> Dataset::ReadIdx(const std::string& folder, const std::string& stem, uint64_t images_max) {
  absl::StatusOr<IdxArray> images =
      ReadIdxFile(folder, stem + "-images-idx3-ubyte", {.rank = 3, .keep_max = images_max});
  if (!images.ok()) return images.status();
  absl::StatusOr<IdxArray> labels =
      ReadIdxFile(folder, stem + "-labels-idx1-ubyte", {.rank = 1, .keep_max = images_max});
  if (!labels.ok()) return labels.status();
  if (images->shape[0] != labels->shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(folder, "/", stem, "-*: ", images->shape[0], " images but ",
                                                   labels->shape[0], " labels; there must be one for each"));
  }
  Dataset dataset;
  dataset.shape_ = {.channels = 1, .height = images->shape[1], .width = images->shape[2]};
  dataset.pixels_ = std::move(images->values);
  dataset.labels_.assign(labels->values.begin(), labels->values.end());
  return dataset;
}

std::vector<uint64_t> Dataset::LabelCounts(uint32_t classes) const {
  std::vector<uint64_t> counts(classes);
  for (const uint32_t label : labels_) {
    if (label < classes) ++counts[label];
  }
  return counts;
}

uint64_t Dataset::Fingerprint() const {
  RunningChecksum checksum;
  const uint64_t sides[] = {shape_.channels, shape_.height, shape_.width, labels_.size()};
  checksum.Add(sides, sizeof(sides));
  checksum.Add(labels_.data(), labels_.size() * sizeof(labels_[0]));
  checksum.Add(pixels_.data(), pixels_.size());
  return std::max<uint64_t>(1, checksum.value());
}

uint32_t Dataset::label_max() const { return *std::max_element(labels_.begin(), labels_.end()); }

Dataset::Scale Dataset::ScaleOf(double mean, double deviation, double white) {
  return {.scale = static_cast<float>(1 / (white * deviation)), .shift = static_cast<float>(mean / deviation)};
}

absl::StatusOr<Dataset> Dataset::OpenPrepared(const std::string& folder, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options) {
  return OpenPrepared(folder, InFolder(folder), index, split, options);
}

Dataset Dataset::LikeIndex(const PreparedIndex& index) {
  Dataset dataset;
  dataset.shape_ = index.shape;
  dataset.type_ = index.type;
  const double white = index.type == PixelType::kUint8 ? kPixelMax : 1;
  for (size_t c = 0; c < index.shape.channels; ++c) {
    // What is the same everywhere has no deviation, and becomes 0.
    dataset.scales_.push_back(ScaleOf(index.mean[c], index.deviation[c] > 0 ? index.deviation[c] : 1, white));
  }
  return dataset;
}

void Dataset::AddShard(const PreparedShard& shard, const MappedShard& labels, uint64_t size) {
  starts_.push_back(labels_.size());
  for (uint64_t row = 0; row < shard.rows && labels_.size() < size; ++row) {
    labels_.push_back(static_cast<uint32_t>(labels.label(row)));
  }
  names_.push_back(shard.images.name);
}

absl::StatusOr<Dataset> Dataset::OpenPrepared(const std::string& name, const Locate& locate, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options) {
  const absl::StatusOr<const PreparedSplit*> found = FindSplit(name, index, split);
  if (!found.ok()) return found.status();
  if (options.on_demand) {
    return OpenStreamed(name, locate, OnDemand(name, locate, index, **found, options), index, split,
                        options.images_max);
  }
  const uint64_t size = KeptImages(**found, options.images_max);
  Dataset dataset = LikeIndex(index);
  for (const PreparedShard& shard : (*found)->ShardsOf(options.images_max)) {
    absl::StatusOr<MappedShard> mapped = OpenShard(locate, shard, index);
    if (!mapped.ok()) return mapped.status();
    absl::Status status = CheckLabels(*mapped, shard, index.classes.size());
    if (status.ok() && options.verify) status = CheckBytes(*mapped, shard);
    if (status.ok() && options.verify) status = CheckPixels(*mapped, shard, index);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    dataset.AddShard(shard, *mapped, size);
    dataset.shards_.push_back(*std::move(mapped));
  }
  return dataset;
}

absl::StatusOr<Dataset> Dataset::OpenStreamed(const std::string& name, const Locate& locate,
                                              std::shared_ptr<ShardSource> shards, const PreparedIndex& index,
                                              const std::string& split, uint64_t images_max) {
  const absl::StatusOr<const PreparedSplit*> found = FindSplit(name, index, split);
  if (!found.ok()) return found.status();
  const uint64_t size = KeptImages(**found, images_max);
  Dataset dataset = LikeIndex(index);
  for (const PreparedShard& shard : (*found)->ShardsOf(images_max)) {
    const absl::StatusOr<MappedShard> labels = OpenLabels(locate, shard);
    if (!labels.ok()) return labels.status();
    const absl::Status status = CheckLabels(*labels, shard, index.classes.size());
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    dataset.AddShard(shard, *labels, size);
  }
  dataset.streamed_ = std::move(shards);
  return dataset;
}

std::vector<uint32_t> Dataset::BlockSamples() const {
  if (streamed_ == nullptr || !streamed_->spread()) return {};
  std::vector<uint32_t> samples;
  for (size_t i = 0; i < starts_.size(); ++i) {
    const uint64_t end = i + 1 < starts_.size() ? starts_[i + 1] : size();
    samples.push_back(static_cast<uint32_t>(end - starts_[i]));
  }
  return samples;
}

Dataset Dataset::FromSource(std::shared_ptr<const ImageSource> source, const ImageShape& shape,
                            std::vector<uint32_t> labels) {
  Dataset dataset;
  dataset.source_ = std::move(source);
  dataset.shape_ = shape;
  dataset.labels_ = std::move(labels);
  return dataset;
}

Dataset Dataset::FromScenes(std::shared_ptr<const SceneSource> source) {
  Dataset dataset;
  dataset.shape_ = {.channels = 3, .height = 0, .width = 0};
  dataset.labels_.assign(source->size(), 0);
  dataset.scenes_ = std::move(source);
  return dataset;
}

absl::StatusOr<const uint8_t*> Dataset::Pixels(uint32_t index, Scratch<uint8_t>& scratch) const {
  SLACKLINE_CHECK(index < size());
  if (source_ != nullptr) {
    scratch.pixels.resize(shape_.values());
    if (absl::Status read = source_->Read(index, absl::MakeSpan(scratch.pixels)); !read.ok()) return read;
    return scratch.pixels.data();
  }
  if (starts_.empty()) return pixels_.data() + index * shape_.values();
  if (absl::Status found = FindMapped(index, scratch.place); !found.ok()) return found;
  return scratch.place.pixels;
}

absl::StatusOr<const float*> Dataset::Pixels(uint32_t index, Scratch<float>& scratch) const {
  SLACKLINE_CHECK(index < size());
  if (absl::Status found = FindMapped(index, scratch.place); !found.ok()) return found;
  const Place& place = scratch.place;
  scratch.pixels.resize(shape_.values());
  const absl::Status good = CheckHalves(names_[place.shard], place.row, place.pixels, scratch.pixels.size());
  if (!good.ok()) return good;
  ReadHalves(place.pixels, absl::MakeSpan(scratch.pixels));
  return scratch.pixels.data();
}

size_t Dataset::ShardOf(uint32_t index) const {
  return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) - starts_.begin()) - 1;
}

absl::Status Dataset::Fetch(absl::Span<const uint32_t> indices, const FetchWatch& watch) const {
  if (streamed_ == nullptr) return absl::OkStatus();
  std::vector<bool> wanted(starts_.size());
  for (const uint32_t index : indices) wanted[ShardOf(static_cast<uint32_t>(index % size()))] = true;
  return streamed_->Fetch(wanted, watch);
}

absl::Status Dataset::FindMapped(uint32_t index, Place& place) const {
  const size_t shard = ShardOf(index);
  if (streamed_ != nullptr && (place.held == nullptr || place.shard != shard)) {
    absl::StatusOr<std::shared_ptr<const MappedShard>> held = streamed_->Open(shard);
    if (!held.ok()) return held.status();
    place.held = *std::move(held);
  }
  place.shard = shard;
  place.row = index - starts_[shard];
  const uint8_t* const pixels = streamed_ != nullptr ? place.held->pixels : shards_[shard].pixels;
  place.pixels = pixels + place.row * shape_.values() * BytesOfPixel(type_);
  return absl::OkStatus();
}

absl::Status Dataset::Load(absl::Span<const uint32_t> indices, double mean, double deviation, Batch& batch,
                           const Variation* variation) const {
  batch.noise = 0;
  batch.share = 1;
  batch.other_labels.clear();
  if (!has_scenes()) batch.scenes.clear();
  for (const uint32_t index : indices) batch.noise = SplitMix64(batch.noise + index).Next();
  if (has_scenes()) return LoadScenes(*scenes_, indices, variation, batch);
  batch.scenes.clear();
  const Scale same = ScaleOf(mean, deviation, kPixelMax);
  const absl::Status loaded = type_ == PixelType::kUint8 ? LoadPixels<uint8_t>(indices, same, batch, variation)
                                                         : LoadPixels<float>(indices, same, batch, variation);
  if (!loaded.ok()) return loaded;
  if (variation != nullptr && variation->augment.mixes() && !indices.empty()) MixBatch(*variation, shape_, batch);
  return absl::OkStatus();
}

template <typename Pixel>
absl::Status Dataset::LoadPixels(absl::Span<const uint32_t> indices, const Scale& same, Batch& batch,
                                 const Variation* variation) const {
  const size_t plane = size_t{shape_.height} * shape_.width;
  const uint32_t views = variation == nullptr ? 1 : variation->augment.views;
  RemakeFloats(batch.images, views * indices.size() * shape_.values());
  batch.views = views;
  batch.labels.resize(indices.size());
  BasicAugmenter<Pixel> augmenter(variation == nullptr ? Variation{} : *variation, shape_);
  Scratch<Pixel> scratch;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto image = static_cast<uint32_t>(indices[i] % size());
    const absl::StatusOr<const Pixel*> pixels = Pixels(image, scratch);
    if (!pixels.ok()) return pixels.status();
    for (uint32_t view = 0; view < views; ++view) {
      const Pixel* in = augmenter.Apply(*pixels, indices[i], view);
      float* out = batch.images.data() + (view * indices.size() + i) * shape_.values();
      for (uint32_t c = 0; c < shape_.channels; ++c, in += plane, out += plane) {
        const Scale scale = scales_.empty() ? same : scales_[c];
        for (size_t p = 0; p < plane; ++p) out[p] = static_cast<float>(in[p]) * scale.scale - scale.shift;
      }
    }
    batch.labels[i] = labels_[image];
  }
  return absl::OkStatus();
}

std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch,
                                 absl::Span<const uint32_t> block_samples) {
  SLACKLINE_CHECK(size <= std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  // The seed is mixed before the epoch is added, so that seed 1 epoch 1 is not seed 2 epoch 0.
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  if (block_samples.empty()) Shuffle(random, absl::MakeSpan(order));
  uint64_t begin = 0;
  for (const uint32_t samples : block_samples) {
    SLACKLINE_CHECK(begin + samples <= size);
    Shuffle(random, absl::MakeSpan(order).subspan(begin, samples));
    begin += samples;
  }
  return order;
}

std::vector<uint32_t> OrderByFile(absl::Span<const uint64_t> starts, uint64_t size, uint64_t seed, uint32_t epoch) {
  SLACKLINE_CHECK(size <= std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> files(starts.size());
  std::iota(files.begin(), files.end(), 0);
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  Shuffle(random, absl::MakeSpan(files));
  std::vector<uint32_t> order;
  order.reserve(size);
  for (const uint32_t file : files) {
    const size_t begin = order.size();
    const uint64_t end = file + 1 < starts.size() ? starts[file + 1] : size;
    for (uint64_t image = starts[file]; image < end; ++image) order.push_back(static_cast<uint32_t>(image));
    Shuffle(random, absl::MakeSpan(order).subspan(begin));
  }
  SLACKLINE_CHECK(order.size() == size);
  return order;
}

std::vector<uint32_t> BalancedOrder(absl::Span<const uint32_t> labels, uint64_t seed, uint32_t epoch) {
  const uint64_t size = labels.size();
  SLACKLINE_CHECK(size > 0 && size <= std::numeric_limits<uint32_t>::max());
  std::map<uint32_t, std::vector<uint32_t>> classes;
  for (uint32_t i = 0; i < size; ++i) classes[labels[i]].push_back(i);
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  // Samples that the division leaves over go to other classes in each epoch.
  std::vector<uint32_t> places(classes.size());
  std::iota(places.begin(), places.end(), 0);
  Shuffle(random, absl::MakeSpan(places));
  const uint64_t rounds_max = (uint64_t{std::numeric_limits<uint32_t>::max()} + 1) / size;
  std::vector<uint32_t> order;
  order.reserve(size);
  auto place = places.begin();
  for (auto& [label, images] : classes) {
    const uint64_t due = size / classes.size() + (*place++ < size % classes.size() ? 1 : 0);
    Shuffle(random, absl::MakeSpan(images));
    for (uint64_t i = 0; i < due; ++i) {
      const uint64_t round = i / images.size() % rounds_max;
      order.push_back(static_cast<uint32_t>(images[i % images.size()] + round * size));
    }
  }
  Shuffle(random, absl::MakeSpan(order));
  return order;
}

}  // namespace slackline::images

// Dataset: images and labels, in memory or mapped, and the order in which an epoch visits them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "images/augment/augment.h"
#include "images/base/batch.h"
#include "images/base/fetch_watch.h"
#include "images/dataset/scene_source.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_shard.h"

namespace slackline::images {

// ImageSource reads single images of a data set, which are produced on demand.
//
// Thread-safety: safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Writes image `index` of the data set: channels x height x width bytes.
  //   kDataLoss     neither the image nor others in its place can be read; names the first
  virtual absl::Status Read(uint32_t index, absl::Span<uint8_t> out) const = 0;
};

// Dataset holds images of uint8 or float16 with one label each. Moved, not copied.
//
// Thread-safety: const calls are safe.
class Dataset {
 public:
  // Reads STEM-images-idx3-ubyte and STEM-labels-idx1-ubyte, plain or with .gz, from `folder`. `stem` is "train" or
  // "t10k". Keeps the first `images_max` images; 0 keeps all.
  //   kNotFound         a file does not exist; names both names that were tried
  //   kInvalidArgument  not IDX, cut short, trailing bytes, or different counts of labels and images
  static absl::StatusOr<Dataset> ReadIdx(const std::string& folder, const std::string& stem, uint64_t images_max = 0);

  struct PreparedOptions {
    uint64_t images_max = 0;  // number of images to keep, from the first on; 0 keeps all
    bool verify = false;      // reads all bytes and compares their checksums
    bool on_demand = false;   // gets the labels alone; Fetch() gets the images
  };
  // Maps the files of one split of prepared images.
  //   kNotFound         a file is missing
  //   kInvalidArgument  a file is cut short, of another type or shape, a label is not below the number of classes,
  //                     the split has no images, or, with `verify`, a pixel is not from 0 to 1
  //   kDataLoss         a checksum differs
  static absl::StatusOr<Dataset> OpenPrepared(const std::string& folder, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options);

  // Maps files that `locate` finds. `name` names the whole data set in errors.
  static absl::StatusOr<Dataset> OpenPrepared(const std::string& name, const Locate& locate, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options);
  // Opens a split whose shards come and go: image i of shard s is read from `shards`, Open(s). `locate` finds the files
  // of labels. Otherwise as OpenPrepared(); pixels are not verified.
  static absl::StatusOr<Dataset> OpenStreamed(const std::string& name, const Locate& locate,
                                              std::shared_ptr<ShardSource> shards, const PreparedIndex& index,
                                              const std::string& split, uint64_t images_max);
  // Creates a data set whose images are produced on demand.
  static Dataset FromSource(std::shared_ptr<const ImageSource> source, const ImageShape& shape,
                            std::vector<uint32_t> labels);
  // Creates a data set of images with objects. All its labels are 0.
  static Dataset FromScenes(std::shared_ptr<const SceneSource> source);

  uint64_t size() const { return labels_.size(); }
  // True if images are produced on demand, which takes longer than reading them.
  bool decoded() const { return source_ != nullptr || scenes_ != nullptr; }
  bool has_scenes() const { return scenes_ != nullptr; }
  // Returns the number of images in each shard of a data set whose shards come and go; empty for all others. An epoch's
  // order then permutes the images of each shard.
  std::vector<uint32_t> BlockSamples() const;
  uint32_t channels() const { return shape_.channels; }
  uint32_t height() const { return shape_.height; }
  uint32_t width() const { return shape_.width; }
  uint32_t label_max() const;
  // Returns the number of images in each class. Labels that are not below `classes` are not counted.
  std::vector<uint64_t> LabelCounts(uint32_t classes) const;

  const std::vector<uint32_t>& labels() const { return labels_; }
  // Returns the first image of each file of prepared images; empty for other data sets.
  const std::vector<uint64_t>& file_starts() const { return starts_; }

  // Gets the files of these images, so that Load() can read them, and lets go of all other files. Changes nothing if
  // the data set is not on demand. One thread at a time calls this for all data sets of a job. `watch` may be null.
  //   as OpenPrepared() and `watch`
  absl::Status Fetch(absl::Span<const uint32_t> indices, const FetchWatch& watch) const;
  // Returns XXH3 of pixels and labels, for images that are in memory: those of IDX. Never 0.
  uint64_t Fingerprint() const;

  // Normalises images `indices` into `batch`: (pixel / 255 - mean) / deviation. Prepared images have their own mean and
  // deviation for each channel, and ignore the arguments. The batch's memory is reused if it is large enough.
  //
  // With a variation, images are augmented before they are normalised, and the batch is mixed after that. With several
  // views, the batch has the first view of all images, then the second. Images with objects are loaded by LoadScenes().
  // Index `image + n x size()` is the same image again, varied differently.
  //
  //   kInvalidArgument     an image of float16 has values outside [0, 1]
  //   kFailedPrecondition  the data set is on demand, and the last Fetch() did not name the image
  //   as ImageSource::Read(), or ShardSource::Open()
  absl::Status Load(absl::Span<const uint32_t> indices, double mean, double deviation, Batch& batch,
                    const Variation* variation = nullptr) const;

 private:
  // Converts a pixel to a normalised number: pixel x scale - shift.
  struct Scale {
    float scale = 1;
    float shift = 0;
  };
  // Returns the scale for pixels from 0 to `white`, which stands for 1.
  static Scale ScaleOf(double mean, double deviation, double white);
  // Place of a prepared image. If shards come and go, it holds the shard.
  struct Place {
    size_t shard = 0;
    uint64_t row = 0;
    std::shared_ptr<const MappedShard> held = nullptr;
    const uint8_t* pixels = nullptr;
  };
  // Memory of one caller of Pixels(), which its result may point into.
  template <typename Pixel>
  struct Scratch {
    std::vector<Pixel> pixels;
    Place place = {};
  };
  // Returns a data set without images, with the shape and the scales of the index.
  static Dataset LikeIndex(const PreparedIndex& index);
  // Adds the labels of a shard, and where its images begin, until there are `size` images.
  void AddShard(const PreparedShard& shard, const MappedShard& labels, uint64_t size);
  // Returns channels x height x width pixels. Uses `scratch` if they are not in memory. The overload for floats reads
  // float16 images.
  absl::StatusOr<const uint8_t*> Pixels(uint32_t index, Scratch<uint8_t>& scratch) const;
  absl::StatusOr<const float*> Pixels(uint32_t index, Scratch<float>& scratch) const;
  // Returns the number of the shard that has a prepared image.
  size_t ShardOf(uint32_t index) const;
  // Finds a prepared image in its mapped file.
  absl::Status FindMapped(uint32_t index, Place& place) const;
  // Implements Load() for images without objects.
  template <typename Pixel>
  absl::Status LoadPixels(absl::Span<const uint32_t> indices, const Scale& same, Batch& batch,
                          const Variation* variation) const;

  ImageShape shape_;
  PixelType type_ = PixelType::kUint8;
  std::vector<uint32_t> labels_;
  // Shared, since data sets can be moved while threads read.
  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<const SceneSource> scenes_;
  // Pixels of IDX files.
  std::vector<uint8_t> pixels_;
  // Prepared images: the shards, the first image of each shard, and one scale per channel.
  std::vector<MappedShard> shards_;
  std::vector<uint64_t> starts_;
  // Shards that come and go, in place of shards_.
  std::shared_ptr<ShardSource> streamed_;
  std::vector<Scale> scales_;
  std::vector<std::string> names_;  // names of the shards' image files, for errors
};

// Returns the order of epoch `epoch` (from 0) over `size` images. The permutation depends only on seed and epoch: it is
// the same on every worker and platform. With `block_samples`, which add up to `size`, each block of consecutive images
// is permuted by itself, and stays at its position.
std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch,
                                 absl::Span<const uint32_t> block_samples = {});

// Returns the order of an epoch that visits files one after the other: the files in random order, and the images of
// each file in random order. `starts` are those of Dataset::file_starts().
std::vector<uint32_t> OrderByFile(absl::Span<const uint64_t> starts, uint64_t size, uint64_t seed, uint32_t epoch);

// Returns an order in which all classes that have images are equally frequent, to within one. The order is as long as
// `labels`. The images of a class are shuffled anew each epoch and repeat as often as needed. In round n, from 0, image
// i has the index i + n x labels.size(), as Dataset::Load() expects; n wraps around before the index exceeds 32 bits.
std::vector<uint32_t> BalancedOrder(absl::Span<const uint32_t> labels, uint64_t seed, uint32_t epoch);

}  // namespace slackline::images

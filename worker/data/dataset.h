// Images and labels, in memory or mapped into it, and the order in which an epoch goes through them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"
#include "worker/data/image_source.h"
#include "worker/data/prepared_check.h"
#include "worker/data/prepared_index.h"
#include "worker/data/scene_source.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Images of uint8 or float16 with one label each. Moved, not copied.
//
// Thread-safety: const calls are safe.
class Dataset {
 public:
  // Reads STEM-images-idx3-ubyte and STEM-labels-idx1-ubyte, plain or with .gz, from `folder`; `stem` is "train" or
  // "t10k". Keeps the first `images_max` images; 0 keeps all.
  //   kNotFound         no such file; names both names that were tried
  //   kInvalidArgument  not IDX, cut short, trailing bytes, another count of labels than of images
  static absl::StatusOr<Dataset> ReadIdx(const std::string& folder, const std::string& stem, uint64_t images_max = 0);

  struct PreparedOptions {
    uint64_t images_max = 0;  // keeps the first; 0 keeps all
    bool verify = false;      // reads all bytes, and compares their checksums
  };
  // Maps the files of one split of prepared images.
  //   kNotFound         a file is missing
  //   kInvalidArgument  a file is cut short, of another type or shape, a label is not below the number of classes,
  //                     the split has no images, or, with `verify`, a pixel is not from 0 to 1
  //   kDataLoss         a checksum differs
  static absl::StatusOr<Dataset> OpenPrepared(const std::string& folder, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options);

  // The same of files that `locate` finds; `name`: of the whole, in errors.
  static absl::StatusOr<Dataset> OpenPrepared(const std::string& name, const Locate& locate, const PreparedIndex& index,
                                              const std::string& split, const PreparedOptions& options);
  // Of images that are made when they are needed.
  static Dataset FromSource(std::shared_ptr<const ImageSource> source, const ImageShape& shape,
                            std::vector<uint32_t> labels);
  // Of images with objects, whose labels are all 0.
  static Dataset FromScenes(std::shared_ptr<const SceneSource> source);

  uint64_t size() const { return labels_.size(); }
  // Images are made when they are needed, which takes longer than reading them.
  bool decoded() const { return source_ != nullptr || scenes_ != nullptr; }
  bool has_scenes() const { return scenes_ != nullptr; }
  uint32_t channels() const { return shape_.channels; }
  uint32_t height() const { return shape_.height; }
  uint32_t width() const { return shape_.width; }
  uint32_t label_max() const;
  // How many images each class has; labels that are not below `classes` are not counted.
  std::vector<uint64_t> LabelCounts(uint32_t classes) const;

  const std::vector<uint32_t>& labels() const { return labels_; }
  // XXH3 of pixels and labels, of images in memory: those of IDX.
  uint64_t Fingerprint() const;

  // Normalises images `indices` into `batch`: (pixel / 255 - mean) / deviation. Prepared images have a mean and a
  // deviation of their own for each channel, and these do not count. With a variation images are augmented before that,
  // and the batch is mixed behind it; with several views the batch has the first of all images, then the second. Images
  // with objects are as LoadScenes() has them. An index of image + n x size() is the image once more, varied otherwise.
  // The batch's memory stays where it is large enough.
  //   kInvalidArgument  an image of float16 has values that are not from 0 to 1
  //   as ImageSource::Read()
  absl::Status Load(absl::Span<const uint32_t> indices, double mean, double deviation, Batch& batch,
                    const Variation* variation = nullptr) const;

 private:
  // What makes a pixel a number: pixel x scale - shift.
  struct Scale {
    float scale = 1;
    float shift = 0;
  };
  // `white`: the pixel that is 1.
  static Scale ScaleOf(double mean, double deviation, double white);
  // channels x height x width pixels, in `scratch` if they are nowhere else. Floats are those of float16.
  absl::StatusOr<const uint8_t*> Pixels(uint32_t index, std::vector<uint8_t>& scratch) const;
  absl::StatusOr<const float*> Pixels(uint32_t index, std::vector<float>& scratch) const;
  // Of prepared images, where they are mapped.
  const uint8_t* Mapped(uint32_t index, size_t& shard, uint64_t& row) const;
  // Load() of images.
  template <typename Pixel>
  absl::Status LoadPixels(absl::Span<const uint32_t> indices, const Scale& same, Batch& batch,
                          const Variation* variation) const;

  ImageShape shape_;
  PixelType type_ = PixelType::kUint8;
  std::vector<uint32_t> labels_;
  // Shared: data sets can be moved while threads read.
  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<const SceneSource> scenes_;
  // Of IDX.
  std::vector<uint8_t> pixels_;
  // Of prepared images: the shards, the first image of each, and a scale a channel.
  std::vector<MappedShard> shards_;
  std::vector<uint64_t> starts_;
  std::vector<Scale> scales_;
  std::vector<std::string> names_;  // of the shards' images, for errors
};

// The order of epoch `epoch` (from 0) over `size` images: the same permutation on every worker and platform for the
// same seed and epoch.
std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch);

// The order of an epoch over as many images as there are labels, in which each class that has images is as often as any
// other, to within one. The images of a class, mixed anew each epoch, go round as often as it takes: the n-th time,
// from 0, image i is i + n x the number of labels, as Dataset::Load() has it (n is taken modulo what 32 bits hold).
std::vector<uint32_t> BalancedOrder(absl::Span<const uint32_t> labels, uint64_t seed, uint32_t epoch);

}  // namespace slackline::worker

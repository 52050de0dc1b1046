// Images and labels in memory, and the order in which an epoch goes through them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/model.h"

namespace slackline::worker {

// uint8 images with one label each.
//
// Thread-safety: const calls are safe.
class Dataset {
 public:
  // Reads STEM-images-idx3-ubyte and STEM-labels-idx1-ubyte, plain or with .gz, from `folder`; `stem` is "train" or
  // "t10k". Keeps the first `images_max` images; 0 keeps all.
  //   kNotFound         no such file; names both names that were tried
  //   kInvalidArgument  not IDX, cut short, trailing bytes, another count of labels than of images
  static absl::StatusOr<Dataset> ReadIdx(const std::string& folder, const std::string& stem, uint64_t images_max = 0);

  uint64_t size() const { return labels_.size(); }
  uint32_t height() const { return height_; }
  uint32_t width() const { return width_; }
  uint32_t label_max() const;
  // How many images each class has; labels that are not below `classes` are not counted.
  std::vector<uint64_t> LabelCounts(uint32_t classes) const;

  // Normalises images `indices` into `batch`: (pixel / 255 - mean) / deviation.
  void Load(absl::Span<const uint32_t> indices, double mean, double deviation, Batch& batch) const;

 private:
  uint32_t height_ = 0;
  uint32_t width_ = 0;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
};

// The order of epoch `epoch` (from 0) over `size` images: the same permutation on every worker and platform for the
// same seed and epoch.
std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch);

}  // namespace slackline::worker

#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/data/idx_file.h"
#include "worker/data/random_order.h"

namespace slackline::worker {
namespace {

constexpr float kPixelMax = 255;

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
  dataset.height_ = images->shape[1];
  dataset.width_ = images->shape[2];
  dataset.pixels_ = std::move(images->values);
  dataset.labels_ = std::move(labels->values);
  return dataset;
}

std::vector<uint64_t> Dataset::LabelCounts(uint32_t classes) const {
  std::vector<uint64_t> counts(classes);
  for (const uint8_t label : labels_) {
    if (label < classes) ++counts[label];
  }
  return counts;
}

uint32_t Dataset::label_max() const { return *std::max_element(labels_.begin(), labels_.end()); }

void Dataset::Load(absl::Span<const uint32_t> indices, double mean, double deviation, Batch& batch) const {
  const size_t pixels = size_t{height_} * width_;
  const auto scale = static_cast<float>(1 / (kPixelMax * deviation));
  const auto shift = static_cast<float>(mean / deviation);
  batch.images.resize(indices.size() * pixels);
  batch.labels.resize(indices.size());
  batch.noise = 0;
  for (const uint32_t index : indices) batch.noise = SplitMix64(batch.noise + index).Next();
  float* out = batch.images.data();
  for (size_t i = 0; i < indices.size(); ++i, out += pixels) {
    SLACKLINE_CHECK(indices[i] < size());
    const uint8_t* in = pixels_.data() + indices[i] * pixels;
    for (size_t p = 0; p < pixels; ++p) out[p] = static_cast<float>(in[p]) * scale - shift;
    batch.labels[i] = labels_[indices[i]];
  }
}

}  // namespace slackline::worker

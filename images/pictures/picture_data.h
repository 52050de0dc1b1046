// Opens pictures as data sets that are decoded on demand. The images, and their order, equal those that `slackline
// prepare --seed 1` produces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "images/dataset/dataset.h"
#include "images/pictures/form.h"
#include "images/pictures/source.h"

namespace slackline::images::pictures {

struct PictureOptions {
  SourceKind kind = SourceKind::kFolder;  // kFolder or kWebdataset
  FormWish form;
  std::string evaluation_split;
  std::string last_split = "";    // of the last evaluation; empty: the same
  uint64_t train_images_max = 0;  // 0 keeps all
  // Number of classes for webdataset, whose labels must be below it; 0: the number found.
  uint32_t classes = 0;
};

struct PictureData {
  Dataset train;
  Dataset test;                      // the evaluation split
  std::optional<Dataset> last_test;  // the split of the last evaluation; absent: the same
  std::vector<std::string> class_names;
};

// Lists the pictures, and opens as few as possible. If a picture cannot be read when it is needed, the failure is
// logged, and the next picture of its class in its split takes its place.
//   kNotFound         no such folder
//   kInvalidArgument  content of another kind than options.kind, no splits, no images in a split that is
//                     used, too many classes, broken tar files
absl::StatusOr<PictureData> OpenPictures(const std::string& folder, const PictureOptions& options);

}  // namespace slackline::images::pictures

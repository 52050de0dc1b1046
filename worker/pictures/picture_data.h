// Pictures that are decoded as they are needed, as data sets: the images that `slackline prepare --seed 1` makes of
// them, in its order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/pictures/form.h"

namespace slackline::worker::pictures {

struct PictureOptions {
  std::string kind;  // folders or webdataset, as Source::kind()
  FormWish form;
  std::string evaluation_split;
  uint64_t train_images_max = 0;  // 0 keeps all
  // Of webdataset: labels are below; 0: as many as there are.
  uint32_t classes = 0;
};

struct PictureData {
  Dataset train;
  Dataset test;  // the evaluation split
  std::vector<std::string> class_names;
};

// Lists the pictures, and opens as few as it needs to. One that cannot be read when it is needed is logged, and the
// next one of its class in its split takes its place.
//   kNotFound         no such folder
//   kInvalidArgument  other content than `kind`, no splits, no images in one of the two, broken tar files
absl::StatusOr<PictureData> OpenPictures(const std::string& folder, const PictureOptions& options);

}  // namespace slackline::worker::pictures

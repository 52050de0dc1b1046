// Opens pictures with annotated objects as data sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "images/dataset/dataset.h"

namespace slackline::images::coco {

struct SplitFiles {
  std::string images;  // a folder
  std::string annotations;
};

struct CocoOptions {
  SplitFiles train;
  SplitFiles evaluation;
  bool masks = true;
  uint32_t classes = 0;           // labels, which are the categories' ids, are below this
  uint64_t train_images_max = 0;  // 0 keeps all
};

struct CocoData {
  Dataset train;  // has no crowd annotations
  Dataset test;
  std::vector<std::string> class_names;  // names by label; the number itself for a label without a category
  uint64_t fingerprint = 0;              // hash of the training pictures' names, sizes and objects; never 0
};

// Reads the annotations, and opens no picture. A picture is opened when it is needed. If it cannot be read, or its size
// differs from its annotations, the failure is logged and the next picture takes its place. Images are in the order of
// their ids.
//   as Annotations::Read(); also if the two splits give one category two names
absl::StatusOr<CocoData> OpenCoco(const CocoOptions& options);

}  // namespace slackline::images::coco

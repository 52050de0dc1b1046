// Pictures with objects, as data sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace slackline::worker::coco {

struct SplitFiles {
  std::string images;  // a folder
  std::string annotations;
};

struct CocoOptions {
  SplitFiles train;
  SplitFiles evaluation;
  bool masks = true;
  uint32_t classes = 0;           // labels, which are the categories' ids, are below
  uint64_t train_images_max = 0;  // 0 keeps all
};

struct CocoData {
  Dataset train;  // without objects that stand for several
  Dataset test;
  std::vector<std::string> class_names;  // by label; of a label that is no category its number
  uint64_t fingerprint = 0;              // of the training pictures' names, sizes and objects; never 0
};

// Reads the annotations, and opens no picture. One that cannot be read when it is needed, or has another size than its
// annotations say, is logged, and the next one takes its place. Images are in the order of their ids.
//   as Annotations::Read(); also where the two splits give one category two names
absl::StatusOr<CocoData> OpenCoco(const CocoOptions& options);

}  // namespace slackline::worker::coco

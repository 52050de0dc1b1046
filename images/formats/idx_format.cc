#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "images/base/class_names.h"
#include "images/formats/formats.h"

namespace slackline::images {
namespace {

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

}  // namespace

const DataFormat kIdxFormat = {.format = job::Data::IDX, .open = OpenIdx, .check = CheckIdxFiles};

}  // namespace slackline::images

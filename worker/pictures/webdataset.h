// Tar files as WebDataset has them: members of one name but for the ending are a sample.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/pictures/source.h"

namespace slackline::worker::pictures {

struct TarSamples {
  std::vector<Sample> samples;  // by the names of the files, and in these in their order
  std::vector<Skipped> skipped;
  bool has_splits = false;
  uint32_t classes = 0;  // the largest label and 1
};

// Names of the tar files in `folder`, in their order.
//   kNotFound, kUnavailable  it cannot be listed
absl::StatusOr<std::vector<std::string>> TarsIn(const std::string& folder);

// The split that the file's name says: train of train-00012.tar, or of cells-train-00012.tar; -1 for none.
int SplitOfTar(const std::string& name);

// KEY.jpg, KEY.jpeg or KEY.png with KEY.cls, a whole number, beside it; other endings are passed over. Without one of
// the two a sample is skipped. Reads the headers of all files, and the labels.
//   kInvalidArgument  a file is broken, or some files say their split and others do not
//   kUnavailable      one cannot be read
absl::StatusOr<TarSamples> ReadTarSamples(const std::string& folder, const std::vector<std::string>& tars);

}  // namespace slackline::worker::pictures

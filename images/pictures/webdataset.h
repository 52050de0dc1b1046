// Reads tar files in WebDataset's format: members whose names differ only in the ending form a sample.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "images/pictures/source.h"

namespace slackline::images::pictures {

struct TarSamples {
  std::vector<Sample> samples;  // ordered by the name of the tar file, then by position in it
  std::vector<Skipped> skipped;
  bool has_splits = false;
  uint32_t classes = 0;  // largest label plus 1
};

// Returns the names of the tar files in `folder`, sorted.
//   kNotFound, kUnavailable  the folder cannot be listed
absl::StatusOr<std::vector<std::string>> TarsIn(const std::string& folder);

// Returns the split in a file's name, for example train for train-00012.tar or cells-train-00012.tar; -1 if there is
// none.
int SplitOfTar(const std::string& name);

// Reads samples: KEY.jpg, KEY.jpeg or KEY.png, and KEY.cls with a whole number. Other endings are ignored. A sample
// without one of the two is skipped. Reads the headers of all files, and the labels.
//   kInvalidArgument  a file is broken, or only some files name their split
//   kUnavailable      a file cannot be read
absl::StatusOr<TarSamples> ReadTarSamples(const std::string& folder, const std::vector<std::string>& tars);

}  // namespace slackline::images::pictures

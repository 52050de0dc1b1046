// Which images go into which split.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/pictures/source.h"

namespace slackline::worker::pictures {

// The fraction of each of kSplitNames.
using Fractions = std::vector<double>;

// "train=0.85,validation=0.02,test=0.13"; a split that is not named gets nothing.
//   kInvalidArgument  another name, a name twice, no fraction, they do not add up to 1, nothing for train
absl::StatusOr<Fractions> ParseFractions(absl::string_view text);

// So many of each class go into each split: [class][split]. Each class is split as its fractions say to within one
// image, and what rounding leaves over is carried from class to class, so that the splits as a whole are as large as
// they should.
std::vector<std::vector<uint64_t>> SplitCounts(absl::Span<const uint64_t> class_counts, const Fractions& fractions);

// Of `folds` parts of each class, as equal as SplitCounts() makes them, number `fold` (from 0) is test and the others
// are train: each image is test in exactly one of the folds.
struct Fold {
  uint32_t folds = 0;  // 0: none
  uint32_t fold = 0;
};

// The samples of each split, in the order in which they are written: mixed by `seed`, so that the first of them are of
// all classes. Stratified by label with `fractions` or folds; without, as the samples say.
std::vector<std::vector<uint32_t>> SplitSamples(const Source& source, const Fractions& fractions, const Fold& fold,
                                                uint64_t seed);

}  // namespace slackline::worker::pictures

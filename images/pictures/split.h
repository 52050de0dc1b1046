// Assigns images to splits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "images/pictures/source.h"

namespace slackline::images::pictures {

// Fraction for each of kSplitNames.
using Fractions = std::vector<double>;

// Parses a text such as "train=0.85,validation=0.02,test=0.13". Splits that are not named get nothing.
//   kInvalidArgument  an unknown name, a name twice, no fraction, fractions that do not add up to 1, nothing for train
absl::StatusOr<Fractions> ParseFractions(absl::string_view text);

// Returns the number of images of each class in each split: [class][split]. The split of each class follows the
// fractions to within one image. Rounding errors are carried from class to class, so that the splits as a whole have
// their intended sizes.
std::vector<std::vector<uint64_t>> SplitCounts(absl::Span<const uint64_t> class_counts, const Fractions& fractions);

// A cross-validation fold. SplitCounts() divides each class into `folds` parts, equal to within one image. Part number
// `fold` (from 0) is test, and the others are train, so that each image is test in exactly one fold.
struct Fold {
  uint32_t folds = 0;  // 0: no folds
  uint32_t fold = 0;
};

// Returns the samples of each split in the order in which they are written. They are shuffled by `seed`, so that the
// first ones are of all classes. With `fractions` or folds, the split is stratified by label, and counts pictures: all
// images of one are in one split. Without, it follows the samples.
std::vector<std::vector<uint32_t>> SplitSamples(const Source& source, const Fractions& fractions, const Fold& fold,
                                                uint64_t seed);

}  // namespace slackline::images::pictures

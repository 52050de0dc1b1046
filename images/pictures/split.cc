#include "images/pictures/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "images/base/random_order.h"

namespace slackline::images::pictures {
namespace {

constexpr double kSumTolerance = 1e-6;

absl::Status BadFractions(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("found --split ", text, ", ", why, "; allowed is e.g. train=0.85,validation=0.02,test=0.13"));
}

}  // namespace

absl::StatusOr<Fractions> ParseFractions(absl::string_view text) {
  Fractions fractions(kSplits, -1);
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const int split = SplitNamed(sides[0]);
    if (split < 0) {
      return BadFractions(text, absl::StrCat("where '", sides[0], "' is none of ", absl::StrJoin(kSplitNames, ", ")));
    }
    if (fractions[split] >= 0) return BadFractions(text, absl::StrCat("which has ", sides[0], " twice"));
    double fraction = 0;
    if (sides.size() != 2 || !absl::SimpleAtod(sides[1], &fraction) || !(fraction >= 0 && fraction <= 1)) {
      return BadFractions(text, absl::StrCat("where ", sides[0], " has no fraction from 0 to 1"));
    }
    fractions[split] = fraction;
  }
  for (double& fraction : fractions) fraction = std::max(0.0, fraction);
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (std::abs(sum - 1) > kSumTolerance)
    return BadFractions(text, absl::StrCat("which adds up to ", sum, " and not 1"));
  if (fractions[0] == 0) return BadFractions(text, "which leaves nothing for train");
  return fractions;
}

std::vector<std::vector<uint64_t>> SplitCounts(absl::Span<const uint64_t> class_counts, const Fractions& fractions) {
  std::vector<double> carried(fractions.size(), 0);
  std::vector<std::vector<uint64_t>> result;
  for (const uint64_t count : class_counts) {
    std::vector<double> due(fractions.size());
    std::vector<uint64_t> given(fractions.size());
    uint64_t sum = 0;
    for (size_t i = 0; i < fractions.size(); ++i) {
      due[i] = fractions[i] * static_cast<double>(count) + carried[i];
      given[i] = due[i] > 0 ? static_cast<uint64_t>(due[i]) : 0;
      sum += given[i];
    }
    // One to whom most is due, or back from whom has most too many.
    const auto owed = [&](size_t i) { return due[i] - static_cast<double>(given[i]); };
    for (; sum < count; ++sum) {
      size_t best = 0;
      for (size_t i = 1; i < fractions.size(); ++i) {
        if (owed(i) > owed(best)) best = i;
      }
      ++given[best];
    }
    for (; sum > count; --sum) {
      size_t best = fractions.size();
      for (size_t i = 0; i < fractions.size(); ++i) {
        if (given[i] > 0 && (best == fractions.size() || owed(i) < owed(best))) best = i;
      }
      --given[best];
    }
    for (size_t i = 0; i < fractions.size(); ++i) carried[i] = owed(i);
    result.push_back(std::move(given));
  }
  return result;
}

std::vector<std::vector<uint32_t>> SplitSamples(const Source& source, const Fractions& fractions, const Fold& fold,
                                                uint64_t seed) {
  const std::vector<Sample>& samples = source.samples();
  std::vector<std::vector<uint32_t>> splits(kSplits);
  SplitMix64 random(SplitMix64(seed).Next());
  if (fractions.empty() && fold.folds == 0) {
    for (uint32_t i = 0; i < samples.size(); ++i) splits[samples[i].split].push_back(i);
  } else {
    const Fractions parts = fold.folds > 0 ? Fractions(fold.folds, 1.0 / fold.folds) : fractions;
    // Pictures, each in the class of its first image.
    std::map<uint32_t, std::vector<uint32_t>> pictures;
    for (uint32_t i = 0; i < samples.size(); ++i) pictures[samples[i].picture].push_back(i);
    std::vector<std::vector<uint32_t>> by_class(source.classes().size());
    for (const auto& [picture, images] : pictures) by_class[samples[images.front()].label].push_back(picture);
    std::vector<uint64_t> class_counts;
    for (const std::vector<uint32_t>& one : by_class) class_counts.push_back(one.size());
    const std::vector<std::vector<uint64_t>> counts = SplitCounts(class_counts, parts);
    for (size_t label = 0; label < by_class.size(); ++label) {
      Shuffle(random, absl::MakeSpan(by_class[label]));
      auto next = by_class[label].begin();
      for (size_t part = 0; part < parts.size(); ++part) {
        const auto end = next + static_cast<int64_t>(counts[label][part]);
        std::vector<uint32_t>& split = fold.folds == 0 ? splits[part] : splits[part == fold.fold ? kTestSplit : 0];
        for (; next != end; ++next) split.insert(split.end(), pictures[*next].begin(), pictures[*next].end());
      }
    }
  }
  for (std::vector<uint32_t>& split : splits) Shuffle(random, absl::MakeSpan(split));
  return splits;
}

}  // namespace slackline::images::pictures

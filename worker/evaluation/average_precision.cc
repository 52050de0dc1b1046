#include "worker/evaluation/average_precision.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace slackline::worker {
namespace {

constexpr size_t kRecalls = 101;
// As pycocotools has it, so that an overlap of exactly 1 is reached.
constexpr double kNearlyOne = 1 - 1e-10;

// To the last bit those of pycocotools, which has them from numpy.linspace.
double OverlapAt(size_t level) {
  constexpr double kFirst = 0.5, kLast = 0.95, kStep = (kLast - kFirst) / (AveragePrecision::kOverlaps - 1);
  return level + 1 == AveragePrecision::kOverlaps ? kLast : static_cast<double>(level) * kStep + kFirst;
}

double RecallAt(size_t i) { return i + 1 == kRecalls ? 1 : static_cast<double>(i) * 0.01; }

}  // namespace

double BoxOverlap(absl::Span<const float> found, absl::Span<const float> truth, bool crowd) {
  const auto side = [](absl::Span<const float> box, size_t axis) {
    return std::max(0.0, static_cast<double>(box[axis + 2]) - static_cast<double>(box[axis]));
  };
  const auto shared = [&](size_t axis) {
    const double begin = std::max(found[axis], truth[axis]), end = std::min(found[axis + 2], truth[axis + 2]);
    return std::max(0.0, end - begin);
  };
  const double both = shared(0) * shared(1), own = side(found, 0) * side(found, 1);
  const double whole = crowd ? own : own + side(truth, 0) * side(truth, 1) - both;
  return whole > 0 ? both / whole : 0;
}

double MaskOverlap(absl::Span<const uint8_t> found, absl::Span<const uint8_t> truth, bool crowd) {
  SLACKLINE_CHECK(found.size() == truth.size());
  uint64_t both = 0, own = 0, other = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    both += found[i] & truth[i];
    own += found[i];
    other += truth[i];
  }
  const uint64_t whole = crowd ? own : own + other - both;
  return whole > 0 ? static_cast<double>(both) / static_cast<double>(whole) : 0;
}

// `overlaps` by found, best score first, and by truth, crowds last.
void AveragePrecision::Match(const std::vector<std::vector<double>>& overlaps, const std::vector<bool>& crowd,
                             size_t level, std::vector<Hit>& found) {
  std::vector<bool> taken(crowd.size());
  for (size_t f = 0; f < found.size(); ++f) {
    double best = std::min(OverlapAt(level), kNearlyOne);
    size_t match = crowd.size();
    for (size_t t = 0; t < crowd.size(); ++t) {
      if (taken[t] && !crowd[t]) continue;
      // Who has an object looks at no crowds.
      if (match < crowd.size() && !crowd[match] && crowd[t]) break;
      if (overlaps[f][t] < best) continue;
      best = overlaps[f][t];
      match = t;
    }
    if (match == crowd.size()) continue;
    taken[match] = true;
    (crowd[match] ? found[f].passed_over : found[f].hit).set(level);
  }
}

void AveragePrecision::Add(const Image& image, const std::function<double(const Pair&)>& overlap) {
  SLACKLINE_CHECK(image.found.size() == image.scores.size() &&
                  (image.crowd.empty() || image.crowd.size() == image.truth.size()));
  const auto is_crowd = [&](size_t t) { return !image.crowd.empty() && image.crowd[t] != 0; };
  std::vector<std::vector<size_t>> truths(classes_.size()), founds(classes_.size());
  for (size_t t = 0; t < image.truth.size(); ++t) truths.at(static_cast<size_t>(image.truth[t])).push_back(t);
  for (size_t f = 0; f < image.found.size(); ++f) founds.at(static_cast<size_t>(image.found[f])).push_back(f);
  for (size_t label = 0; label < classes_.size(); ++label) {
    std::vector<size_t>&truth = truths[label], &places = founds[label];
    std::stable_partition(truth.begin(), truth.end(), [&](size_t t) { return !is_crowd(t); });
    std::vector<bool> crowd;
    for (const size_t t : truth) crowd.push_back(is_crowd(t));
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t a, size_t b) { return image.scores[a] > image.scores[b]; });
    places.resize(std::min(places.size(), kFoundMax));
    std::vector<Hit> found;
    std::vector<std::vector<double>> overlaps;
    for (const size_t f : places) {
      found.push_back({.score = image.scores[f], .hit = {}, .passed_over = {}});
      std::vector<double>& row = overlaps.emplace_back();
      for (const size_t t : truth) row.push_back(overlap({.found = f, .truth = t}));
    }
    for (size_t level = 0; level < kOverlaps; ++level) Match(overlaps, crowd, level, found);
    Tally& tally = classes_[label];
    tally.objects += static_cast<uint64_t>(std::count(crowd.begin(), crowd.end(), false));
    tally.found.insert(tally.found.end(), found.begin(), found.end());
  }
}

// `found`: best score first.
double AveragePrecision::At(const std::vector<Hit>& found, uint64_t objects, size_t level) {
  std::vector<double> recalls, precisions;
  uint64_t hits = 0, counted = 0;
  for (const Hit& one : found) {
    if (one.passed_over[level]) {
      // pycocotools keeps a point here, which is that before it.
      recalls.push_back(recalls.empty() ? 0 : recalls.back());
      precisions.push_back(precisions.empty() ? 0 : precisions.back());
      continue;
    }
    ++counted;
    if (one.hit[level]) ++hits;
    recalls.push_back(static_cast<double>(hits) / static_cast<double>(objects));
    precisions.push_back(static_cast<double>(hits) / static_cast<double>(counted));
  }
  for (size_t i = precisions.size(); i-- > 1;) precisions[i - 1] = std::max(precisions[i - 1], precisions[i]);
  double sum = 0;
  size_t at = 0;
  for (size_t i = 0; i < kRecalls; ++i) {
    while (at < recalls.size() && recalls[at] < RecallAt(i)) ++at;
    if (at == recalls.size()) break;
    sum += precisions[at];
  }
  return sum / kRecalls;
}

std::vector<ClassPrecision> AveragePrecision::Classes() const {
  std::vector<ClassPrecision> classes;
  for (const Tally& tally : classes_) {
    ClassPrecision& one = classes.emplace_back();
    one.objects = tally.objects;
    one.found = tally.found.size();
    std::vector<Hit> found = tally.found;
    std::stable_sort(found.begin(), found.end(), [](const Hit& a, const Hit& b) { return a.score > b.score; });
    for (const Hit& hit : found) {
      if (hit.score < kScoreMin || hit.passed_over[0]) continue;
      ++one.kept;
      if (hit.hit[0]) ++one.hits;
    }
    if (tally.objects == 0) continue;
    for (size_t level = 0; level < kOverlaps; ++level) {
      const double at = At(found, tally.objects, level);
      one.ap += at / kOverlaps;
      if (level == 0) one.ap_50 = at;
    }
  }
  return classes;
}

MeanPrecision MeanOf(const std::vector<ClassPrecision>& classes) {
  MeanPrecision mean;
  double count = 0;
  for (const ClassPrecision& one : classes) {
    if (one.objects == 0) continue;
    ++count;
    mean.map += one.ap;
    mean.map_50 += one.ap_50;
  }
  if (count == 0) return mean;
  return {.map = mean.map / count, .map_50 = mean.map_50 / count};
}

}  // namespace slackline::worker

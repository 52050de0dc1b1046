// How an evaluator measures what is found on images.
#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "worker/evaluation/average_precision.h"
#include "worker/evaluation/evaluator.h"

namespace slackline::worker {
namespace {

constexpr size_t kBoxSides = 4;

void AddBoxes(const images::Scene& scene, const images::Found& found, AveragePrecision& boxes) {
  const absl::Span<const float> all_found = found.boxes, all_truth = scene.boxes;
  boxes.Add({.truth = scene.labels, .crowd = scene.crowd, .found = found.labels, .scores = found.scores},
            [&](const AveragePrecision::Pair& pair) {
              const bool crowd = !scene.crowd.empty() && scene.crowd[pair.truth] != 0;
              return BoxOverlap(all_found.subspan(kBoxSides * pair.found, kBoxSides),
                                all_truth.subspan(kBoxSides * pair.truth, kBoxSides), crowd);
            });
}

void AddMasks(const images::Scene& scene, const images::Found& found, AveragePrecision& masks) {
  const size_t plane = size_t{scene.height} * scene.width;
  const absl::Span<const uint8_t> all_found = found.masks, all_truth = scene.masks;
  masks.Add({.truth = scene.labels, .crowd = scene.crowd, .found = found.labels, .scores = found.scores},
            [&](const AveragePrecision::Pair& pair) {
              const bool crowd = !scene.crowd.empty() && scene.crowd[pair.truth] != 0;
              return MaskOverlap(all_found.subspan(plane * pair.found, plane),
                                 all_truth.subspan(plane * pair.truth, plane), crowd);
            });
}

}  // namespace

absl::StatusOr<EvaluationResult> Evaluator::EvaluateScenes(Model& model, const EvaluationWork& work,
                                                           const std::function<absl::Status()>& between) {
  const auto classes = static_cast<uint32_t>(options_.class_names.size());
  AveragePrecision boxes(classes), masks(classes);
  bool all_masks = true;
  const auto measure = [&](const images::Batch& batch) -> absl::Status {
    const absl::StatusOr<std::vector<images::Found>> found = model.Detect(batch.scenes);
    if (!found.ok()) return found.status();
    SLACKLINE_CHECK(found->size() == batch.scenes.size());
    for (size_t i = 0; i < found->size(); ++i) {
      const images::Scene& scene = batch.scenes[i];
      const images::Found& one = (*found)[i];
      AddBoxes(scene, one, boxes);
      all_masks = all_masks && scene.has_masks && one.has_masks;
      if (all_masks) AddMasks(scene, one, masks);
    }
    return between();
  };
  std::vector<uint32_t> all(test_.size());
  std::iota(all.begin(), all.end(), 0);
  if (absl::Status status = ForEachBatch(test_, all, measure); !status.ok()) return status;
  EvaluationResult result;
  result.work = work;
  result.metrics = MetricsOfObjects(test_.size(), boxes, all_masks ? &masks : nullptr);
  for (const uint32_t label : result.metrics.objects->labels) result.class_names.push_back(options_.class_names[label]);
  return result;
}

}  // namespace slackline::worker
